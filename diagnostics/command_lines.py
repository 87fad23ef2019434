"""Show command lines without their secrets. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

from downloader.core.redact import is_secret_param, redact

__all__ = ["shown_command", "without_secrets"]

_CUT = "***"
_LONGEST = 80
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
# In the text of a shell: an option and the word behind it.
_WORDS = re.compile(rf"(?<!\S)({_OPTION.pattern})(\s+)('[^']*'|\"[^\"]*\"|[^\s'\"-]\S*)")


def without_secrets(argv: Sequence[str]) -> list[str]:
    """Return the arguments without the secrets of ``redact``, and without the values of secret options.

    Such a value is what follows ``--password`` or ``--api-key``, also in the text of a shell (``sh -c``).
    """
    return [
        _CUT
        if _is_secret(before) and not word.startswith("-")
        else redact(_WORDS.sub(_without_value, word))
        for before, word in pairwise(["", *argv])
    ]


def shown_command(argv: Sequence[str]) -> str:
    """Return a command line for a message: shortened, and without secrets."""
    text = " ".join(shlex.join(without_secrets(argv)).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _is_secret(word: str) -> bool:
    return _OPTION.fullmatch(word) is not None and is_secret_param(word.lstrip("-"))


def _without_value(hit: re.Match[str]) -> str:
    return f"{hit[1]}{hit[2]}{_CUT}" if _is_secret(hit[1]) else hit[0]
