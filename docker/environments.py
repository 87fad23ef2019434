"""A virtual environment for each interpreter and set of packages, made once and kept.

They are under ``docker/.cache``, which git ignores, named by what is in them: other packages or another
interpreter make another one. The newest packages are those of the day it was made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from docker.cells import Pins
from docker.interpreters import Interpreter

__all__ = ["CACHE", "NotInstalled", "provide"]

CACHE = Path(__file__).resolve().parent / ".cache"

_VIRTUALENV = "virtualenv==20.21.1"  # the last that makes environments of Python 2.7
_PATIENCE = 900  # seconds: PyPy compiles


class NotInstalled(Exception):
    """An environment could not be made; the text is the last that pip had to say."""


def provide(interpreter: Interpreter, pins: Pins, cache: Path = CACHE) -> str:
    """The program of the environment's Python; raises NotInstalled."""
    key = hashlib.sha256("\n".join([interpreter.path, interpreter.version, *pins.packages]).encode())
    version = interpreter.version.replace(" ", "-")
    home = cache / f"{version}-{pins.name}-{key.hexdigest()[:8]}".lower()
    with _locked(cache, home.name):
        if not (home / "whole").exists():
            shutil.rmtree(home, ignore_errors=True)
            _make(interpreter, home, cache)
            python = str(home / "bin" / "python")
            _run([python, "-m", "pip", "install", "--quiet", *pins.packages])
            (home / "whole").touch()
    return str(home / "bin" / "python")


class _locked:
    """One at a time, over all processes that share a cache."""

    def __init__(self, cache: Path, name: str) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self._file = open(cache / f"{name}.lock", "w")  # noqa: SIM115

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _make(interpreter: Interpreter, home: Path, cache: Path) -> None:
    if not interpreter.version.startswith("CPython 2"):
        _run([interpreter.path, "-m", "venv", str(home)])
        return
    tool = cache / "virtualenv"
    with _locked(cache, tool.name):
        if not (tool / "whole").exists():
            shutil.rmtree(tool, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(tool)])
            _run([str(tool / "bin" / "python"), "-m", "pip", "install", "--quiet", _VIRTUALENV])
            (tool / "whole").touch()
    _run(
        [
            str(tool / "bin" / "python"),
            "-m",
            "virtualenv",
            "--quiet",
            "--python",
            interpreter.path,
            str(home),
        ]
    )


def _run(argv: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    try:
        subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=_PATIENCE)
    except subprocess.CalledProcessError as error:
        said = [line for line in (error.stderr or error.stdout).splitlines() if line.strip()] or [
            str(error)
        ]
        raise NotInstalled(next((line for line in said if "ERROR" in line), said[-1])) from error
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"not done after {_PATIENCE} s") from error
