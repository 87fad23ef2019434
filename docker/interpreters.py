"""Find the Pythons on this machine for the cells."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from diagnostics import environments

__all__ = ["find"]


def find(python: str) -> str | None:
    """Return the program of ``3.11`` or ``pypy3.11``; None if there is none that runs."""
    if not python.startswith("pypy"):
        return environments.find(python)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [shutil.which(python), *map(str, sorted(pyenv.glob(f"versions/{python}*/bin/{python}")))]
    for candidate in filter(None, candidates):
        with contextlib.suppress(environments.Unavailable):
            if environments.version_of(candidate) == python.removeprefix("pypy"):
                return candidate
    return None
