"""Interpreters and environments."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from diagnostics import environments
from diagnostics.environments import Unavailable

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_installed_packages_are_found_in_any_spelling() -> None:
    have = version("msgspec")
    assert environments.satisfies(sys.executable, ["msgspec", "PyTest_Timeout", f"msgspec=={have}"])
    assert not environments.satisfies(sys.executable, ["msgspec==0.0.1"])
    assert not environments.satisfies(sys.executable, ["msgspec", "no-such-package"])


def test_a_range_is_left_to_pip() -> None:
    assert not environments.satisfies(sys.executable, ["msgspec<99"])


def test_the_version_is_the_interpreter_s_own() -> None:
    assert environments.version_of(sys.executable) == HERE


def test_interpreter_that_does_not_run_is_unavailable(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no version is set' >&2\nexit 127\n")
    broken.chmod(0o755)
    with pytest.raises(Unavailable, match="no version is set"):
        environments.version_of(str(broken))


def test_an_interpreter_is_found_on_path_and_a_shim_that_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims, pyenv = tmp_path / "shims", tmp_path / "pyenv"
    real = pyenv / "versions" / f"{HERE}.99" / "bin"
    for folder in (shims, real):
        folder.mkdir(parents=True)
    shim = shims / f"python{HERE}"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    os.symlink(sys.executable, real / "python")
    monkeypatch.setenv("PATH", f"{shims}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    found = environments.find(HERE)
    assert found is not None
    assert found != str(shim)
    monkeypatch.setenv("PATH", str(shims))
    assert environments.find(HERE) == str(real / "python")
    assert environments.find("1.5") is None


def test_the_running_interpreter_is_found_where_path_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert environments.find(HERE) == sys.executable
    assert environments.find("1.5") is None


def test_environment_failure_is_one_line_and_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a Python without ensurepip."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
[ "$*" != "${{*#-I -m}}" ] && {{ echo "Error: ensurepip is not available" >&2; exit 1; }}
exec {sys.executable} "$@"
"""
    )
    python.chmod(0o755)
    said: list[str] = []
    with pytest.raises(Unavailable, match="ensurepip is not available") as caught:
        environments.prepare(str(python), ["gevent==1.4.0"], said.append)
    assert "\n" not in str(caught.value)
    assert said == [f"installing gevent==1.4.0 for Python {HERE}"]
    assert not list(environments.cache_folder().glob("*/complete"))
