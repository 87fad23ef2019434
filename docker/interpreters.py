"""Which Pythons this machine has: on the PATH, and those that pyenv installed."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Interpreter", "find"]

_ASK = (
    "import json, platform, sys; print(json.dumps([sys.executable, "
    "platform.python_implementation(), platform.python_version(), list(sys.version_info[:2])]))"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python: its program, and what it calls itself, such as ``CPython 3.11.7``."""

    path: str
    version: str


@functools.cache
def find(python: str) -> Interpreter | None:
    """The interpreter for ``3.11`` or ``pypy3.11``, None where there is none that runs."""
    implementation = "PyPy" if python.startswith("pypy") else "CPython"
    version = python.removeprefix("pypy")
    for path in _candidates(python):
        found = _ask(path)
        if (
            found is not None
            and found[1] == implementation
            and found[3] == list(map(int, version.split(".")))
        ):
            return Interpreter(found[0], f"{implementation} {found[2]}")
    return None


def _candidates(python: str) -> Iterator[str]:
    pypy = python.startswith("pypy")
    names = [python, "pypy3", "pypy"] if pypy else [f"python{python}"]
    for name in names:
        # pyenv first: its shims are on the PATH, and refuse what is not its version of the day.
        for home in sorted(_pyenv().glob("versions/*"), reverse=True):
            if (home / "bin" / name).exists():
                yield str(home / "bin" / name)
        if found := shutil.which(name):
            yield found


def _pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")


def _ask(path: str) -> tuple[str, str, str, list[int]] | None:
    try:
        answer = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, check=True, timeout=20)
        executable, implementation, version, numbers = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return executable, implementation, version, numbers
