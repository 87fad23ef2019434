"""Keep the beginning of standard input, which two children of a run read: one checks it, one lists it."""

from __future__ import annotations

import os

__all__ = ["beginning", "take_beginning"]

_BLOCK = 64 << 10
_MOST = 1 << 20  # the longest line of a list
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_taken = bytearray()


def take_beginning() -> None:
    """Read the first line that is not blank, or more, and keep it for the children that are forked later.

    The line behind ``sep=;`` belongs to it. Nobody can read it from the descriptor again.
    """
    while len(_taken) < _MOST:
        first, _, rest = _taken.lstrip(_BLANKS).partition(b"\n")
        if b"\n" in (rest if first.lstrip(b'"').startswith(b"sep=") else _taken.lstrip(_BLANKS)):
            return
        try:
            block = os.read(0, _BLOCK)
        except OSError:
            return  # whoever reads on says why
        if not block:
            return
        _taken.extend(block)


def beginning() -> bytes:
    """Return what was taken from standard input."""
    return bytes(_taken)
