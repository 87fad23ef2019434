"""Cut secrets from text: those that ``downloader.core.redact`` sees, and the values that are known.

A program may say in its error what its command line or its environment had, under whatever name. So what is
cut there is noted, and cut everywhere.

A message is made of several texts. One whose end looks like that of a secret (``Authorization: ***``) would
take with it what follows it, if the whole message was cut once more. So what is cut is not cut again.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping

from downloader.core import redact as shared

__all__ = ["note_cut", "note_environment", "quoted", "redact"]

_CUT = "***"
_SURELY = 6  # characters from which on a value is none that is a usual word or number, as `true`
_LONGEST = 4096  # characters of a text that is quoted
_SCHEME = re.compile(r"(?:Basic|Bearer|Digest|Token)\s+", re.I)
_BEHIND = re.compile(r"[;&|<>\s'\"`]")  # what ends a word of a shell
_FIELDS = re.compile(r"[^\s=;,&]+=[^\s;,&]*(?:[;,&]\s*[^\s=;,&]+=[^\s;,&]*)*")  # of a cookie
_values: set[str] = set()
_quoted: dict[str, None] = {}


def redact(text: str) -> str:
    """Return ``text`` without its secrets, see ``downloader.core.redact``. Never raises."""
    _note_own()
    values = tuple(sorted(_values))
    pieces = _pieces(text)
    # What was cut before may have a value that was not known then.
    pieces[1::2] = [_without(piece, values) for piece in pieces[1::2]]
    pieces[::2] = [shared.redact(piece, values) for piece in pieces[::2]]
    return quoted("".join(pieces))


def quoted(text: str) -> str:
    """Return ``text``, which has no secrets any more; ``redact`` leaves it as it is, also within others."""
    # Where nothing was cut, the next text may be the value of the last name.
    if "*" in text and len(text) <= _LONGEST and shared.redact(f"{text}: x") != f"{text}: x":
        _quoted[text] = None
    return text


def note_cut(text: str, cut: str, shortest: int = shared.SHORTEST) -> None:
    """Have the secrets of ``text``, which is ``cut`` without them, cut from all text."""
    for value in _missing(text, cut):
        inner = _missing(value, shared.redact(value))
        _values.update(
            each for part in (value, *inner) for each in _secrets_in(part) if _is_telling(each, shortest)
        )


def note_environment(environment: Mapping[str, str]) -> None:
    """Have the secrets of variables cut from all text: the values of those that are named like some."""
    for name, value in environment.items():
        if shared.is_secret_param(name):
            note_cut(value, _CUT, _SURELY)
        elif "@" in value or "=" in value:
            note_cut(value, shared.redact(value), _SURELY)


@functools.cache
def _note_own() -> None:
    note_environment(os.environ)


def _pieces(text: str) -> list[str]:
    """Return ``text`` in pieces, every second one quoted."""
    there = sorted((each for each in _quoted if each in text), key=len, reverse=True)
    return re.split(f"({'|'.join(map(re.escape, there))})", text) if there else [text]


def _without(text: str, values: tuple[str, ...]) -> str:
    pattern = shared.pattern_of(values)
    return text if pattern is None else pattern.sub(_CUT, text)


def _missing(text: str, cut: str) -> list[str]:
    """Return what ``text`` has in the places of the ``***`` of ``cut``."""
    first, *rest = cut.split(_CUT)
    found, at = [], len(first)
    for number, piece in enumerate(rest, 1):
        end = text.find(piece, at + 1) if number < len(rest) else len(text) - len(piece)
        found.append(text[at:end] if end > at else "")
        at = end + len(piece)
    if text.startswith(first) and text.endswith(rest[-1] if rest else first) and all(found):
        return found
    # Something else was changed, too, as a quote that was open: so every word that is not there any more.
    return [word for word in re.findall(r"[^\s'\"=,;&?{}]+", text) if word not in cut]


def _secrets_in(value: str) -> set[str]:
    """Return what is secret of a value: of a login, of a header and of the words of a shell a part, too."""
    value = value.strip().strip("'\"")
    token = _SCHEME.sub("", value, 1)
    found = {value, token, _BEHIND.split(token, maxsplit=1)[0]}
    if not _BEHIND.search(token):
        found.add(token.partition(":")[2])
    if _FIELDS.fullmatch(token):
        found.update(field.partition("=")[2] for field in re.split(r"[;,&]\s*", token))
    return found


def _is_telling(value: str, shortest: int) -> bool:
    """Return whether ``value`` is to be cut wherever it stands: no path, no kind of a token."""
    if len(value) < shortest or value.startswith("/") or _SCHEME.fullmatch(f"{value} "):
        return False
    return len(value) >= _SURELY or not (value.isalpha() or value.isdecimal())
