"""Show command lines without their secrets."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

from diagnostics.redaction import note_cut, quoted, redact
from downloader.core.redact import is_secret_param

__all__ = ["note_secrets", "shown_command", "shown_line", "shown_words", "without_secrets"]

_CUT = "***"
_LONGEST = 80
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
# In the text of a shell: an option and the word behind it.
_WORDS = re.compile(rf"(?<!\S)({_OPTION.pattern})(\s+)('[^']*'|\"[^\"]*\"|[^\s'\"-]\S*)")
_JSON = re.compile(r"""(\\?["'])([\w.-]+)(\1\s*:\s*\1)((?:(?!\1).)*)(?=\1)""")
# A field of a header in the text of a shell, or of a program: it ends with its quote.
_FIELD = re.compile(r"""(["'])([A-Za-z][\w-]*)(:\s*)(?:(?!\1).)+(?=\1)""")
_LOGINS = re.compile(r"-u|--user|--proxy-user|--login")  # NAME:PASSWORD, as curl has them
_PASSWORDS = {"sshpass", "mysql", "mysqldump", "mysqladmin", "mariadb"}  # that have one behind -p


def without_secrets(argv: Sequence[str]) -> list[str]:
    """Return the arguments without the secrets of ``redact``, and without the values of secret options.

    Such a value is what follows ``--password`` or ``--api-key``, also in the text of a shell (``sh -c``),
    the password of ``-u NAME:PASSWORD``, a value in JSON, and what programs are known to take with ``-p``.
    """
    shown = [_shown(before, word) for before, word in pairwise(["", *argv])]
    programs = [number for number, word in enumerate(argv) if os.path.basename(word) in _PASSWORDS]
    for number in range(programs[0] + 1, len(argv)) if programs else ():
        if argv[number].startswith("-p") and argv[number] != "-p":
            shown[number] = f"-p{_CUT}"
        elif argv[number - 1] == "-p":
            shown[number] = _CUT
    return shown


def note_secrets(argv: Sequence[str]) -> None:
    """Have what is cut from the arguments cut from all text: a program may say in its error what it got."""
    for word, cut in zip(argv, without_secrets(argv), strict=True):
        note_cut(word, cut)


def shown_words(argv: Sequence[str]) -> str:
    """Return the arguments without secrets, as they were given."""
    return quoted(" ".join(without_secrets(argv)))


def shown_line(argv: Sequence[str]) -> str:
    """Return the arguments as a line for a shell, without secrets."""
    return quoted(
        " ".join(
            word if shlex.quote(plain := word.replace(_CUT, "x")) == plain else shlex.quote(word)
            for word in without_secrets(argv)
        )
    )


def shown_command(argv: Sequence[str]) -> str:
    """Return a command line for a message: shortened, and without secrets."""
    text = " ".join(shown_line(argv).split())
    return quoted(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def _shown(before: str, word: str) -> str:
    if _is_secret(before) and not word.startswith("-"):
        return _CUT
    name, colon, password = word.partition(":")
    if _LOGINS.fullmatch(before) and password:
        return f"{name}{colon}{_CUT}"
    word = _JSON.sub(_without_json, _WORDS.sub(_without_value, word))
    shown, end = "", 0
    for field in _FIELD.finditer(word):
        if is_secret_param(field[2]):
            shown += f"{redact(word[end : field.start()])}{field[1]}{field[2]}{field[3]}{_CUT}"
            end = field.end()
    return shown + redact(word[end:])


def _is_secret(word: str) -> bool:
    return _OPTION.fullmatch(word) is not None and is_secret_param(word.lstrip("-"))


def _without_value(hit: re.Match[str]) -> str:
    return f"{hit[1]}{hit[2]}{_CUT}" if _is_secret(hit[1]) else hit[0]


def _without_json(hit: re.Match[str]) -> str:
    return f"{hit[1]}{hit[2]}{hit[3]}{_CUT}" if is_secret_param(hit[2]) else hit[0]
