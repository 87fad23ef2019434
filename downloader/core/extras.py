"""Say whether an optional package is installed, and which command installs it; imports none of them."""

from __future__ import annotations

import functools
import sys
from importlib.util import find_spec
from typing import Final

__all__ = ["ZSTD", "install_command", "is_installed"]

ZSTD: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""The module that compresses with zstd; before Python 3.14 a package."""


@functools.cache
def is_installed(module: str) -> bool:
    """Return whether ``module`` can be imported. Looks for it once in a process."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def install_command(extra: str) -> str:
    """Return the command that installs the packages of ``extra``."""
    return f"pip install 'mass-downloader[{extra}]'"
