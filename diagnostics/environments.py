"""Find interpreters, and create virtual environments with the packages that a scenario needs.

Environments are kept in the user's cache folder, one for each interpreter and set of requirements, and may
be deleted at any time.

Interpreters are run with ``-I``, or a script by its path (Python 2 has no ``-I``): with ``-m`` and ``-c``
alone they would import from the current directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from diagnostics.errors import ProbeError
from diagnostics.output_errors import error_in
from diagnostics.unpacking import agent_in

__all__ = ["Unavailable", "cache_folder", "find", "prepare", "satisfies", "version_of"]

_VIRTUALENV = "virtualenv==20.21.1"  # the last one that makes environments of Python 2.7
_PATIENCE = 900.0


class Unavailable(ProbeError):
    """An interpreter or an environment is not available; the text says why, in one line."""


def cache_folder() -> Path:
    """Return the folder of the environments."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "mass-downloader" / "scenarios"


@cache
def _look(python: str) -> tuple[str, dict[str, str]]:
    try:
        with tempfile.TemporaryDirectory(prefix="diagnostics-") as folder:
            argv = [python, str(agent_in(Path(folder)) / "look.py")]
            done = subprocess.run(argv, env=_plain(), capture_output=True, timeout=30, check=True)
        version, names = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Unavailable(f"{python} does not run: {_last(error)}") from None
    found = {}
    for name in names:
        package, _, rest = name.rpartition(".")[0].partition("-")
        found[_canonical(package)] = rest.partition("-")[0]
    return version, found


def version_of(python: str) -> str:
    """Return major and minor version, ``3.11``. Raises Unavailable when ``python`` does not run."""
    return _look(python)[0]


def satisfies(python: str, packages: Sequence[str]) -> bool:
    """Return whether ``python`` has ``packages`` installed, in the required versions."""
    installed = _look(python)[1]
    for requirement in packages:
        name, _, version = requirement.partition("==")
        have = installed.get(_canonical(re.split(r"[<>=!~\[;]", name)[0]))
        if have is None or (version and have != version) or re.search("[<>!~]", requirement):
            return False
    return True


def find(version: str) -> str | None:
    """Return an interpreter of ``version`` (``3.11``, or ``3`` for any); None without.

    It is from PATH, else from pyenv, else from uv, else the one that runs this.
    """
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    beside = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    beside += sorted(uv.glob(f"cpython-{version}.*/bin/python{version}*[0-9]"))
    for candidate in filter(
        None, [shutil.which(f"python{version}"), *map(str, reversed(beside)), sys.executable]
    ):
        # pyenv has a shim for every version; it runs only for the versions that are enabled.
        with contextlib.suppress(Unavailable):
            if f"{version_of(candidate)}.".startswith(f"{version}."):
                return candidate
    return None


def prepare(python: str, packages: Sequence[str], progress: Callable[[str], None]) -> str:
    """Return the interpreter of an environment of ``python`` with ``packages``; create it if needed.

    ``progress`` is called with a text for each step. Raises Unavailable when it cannot be created.
    """
    version = version_of(python)
    key = json.dumps([os.path.realpath(python), version, sorted(packages)])
    folder = cache_folder() / f"{version}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    with _locked(folder):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            progress(f"installing {', '.join(packages)} for Python {version}")
            _make(python, version, folder)
            _run([*_pip(folder), "install", "--quiet", *packages])
            (folder / "complete").write_text(key)
    return str(folder / "bin" / "python")


def _make(python: str, version: str, folder: Path) -> None:
    if version != "2.7":
        _run([python, "-I", "-m", "venv", str(folder)])
        return
    tool = folder.parent / "virtualenv"
    with _locked(tool):
        if not (tool / "complete").exists():
            shutil.rmtree(tool, ignore_errors=True)
            _run([sys.executable, "-I", "-m", "venv", str(tool)])
            _run([*_pip(tool), "install", "--quiet", _VIRTUALENV])
            (tool / "complete").touch()
    virtualenv = [str(tool / "bin" / "python"), "-I", "-m", "virtualenv"]
    _run([*virtualenv, "--quiet", "--python", python, str(folder)])


def _pip(folder: Path) -> list[str]:
    """Return the command of the environment's pip."""
    return [str(folder / "bin" / "python"), str(folder / "bin" / "pip"), "--disable-pip-version-check"]


def _plain() -> dict[str, str]:
    """Return the environment without the settings of the running interpreter."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def _run(argv: list[str]) -> None:
    try:
        subprocess.run(argv, env=_plain(), capture_output=True, timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{' '.join(argv[1:5])} … failed: {_last(error)}") from None


def _last(error: Exception) -> str:
    """Return what says why: from what a program wrote, else from ``error``."""
    stderr = getattr(error, "stderr", None) or b""
    return error_in(stderr.decode(errors="replace")) or str(error)[:300]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``, so that one process at a time creates it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(folder.suffix + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
