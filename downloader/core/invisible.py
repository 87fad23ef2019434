"""Find characters in a URL that nobody sees: blanks outside ASCII, joiners, byte order marks.

They come from web pages, spreadsheets and lists that were joined. None begins a URL; elsewhere they are
sent, as by curl and browsers, and a host or a server that does not know them fails. Then they have to be
named, since neither the list nor a message shows them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from downloader.errors import failure_kind

__all__ = ["INVISIBLE", "invisible_in", "told_of"]

INVISIBLE: Final = (
    "\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180e\u2000-\u200f\u2028-\u202f"
    "\u205f-\u206f\u3000\u3164\ufeff\uffa0"
)
"""The characters, as in brackets of a regular expression."""
_AT_AN_END: Final = re.compile(f"\\A[{INVISIBLE}]|[{INVISIBLE}]\\Z").search
# An emoji may have joiners in it.
_WITHIN: Final = re.compile(f"(?![\u200c\u200d])[{INVISIBLE}]").search

_MARKS: Final = {",": "comma", ";": "semicolon", '"': "quote", "'": "quote"}


def invisible_in(url: str) -> str:
    """Return a clause that names an invisible character of ``url``, "" if it has none."""
    if url.isascii() or not (match := _AT_AN_END(url) or _WITHIN(url)):
        return ""
    char = match[0]
    name = "byte order mark" if char == "\ufeff" else unicodedata.name(char, "").lower()
    verb = "begins with" if match.start() == 0 else "ends with" if match.end() == len(url) else "contains"
    return f"{verb} U+{ord(char):04X}" + (f" ({name})" if name else "")


def _mark_behind(url: str) -> str:
    """Return a clause that names a mark that ``url`` ends with, "" if it has none."""
    mark = _MARKS.get(url[-1:])
    return f"ends with a {mark}" if mark else ""


def told_of(url: str, code: str, detail: str) -> str:
    """Return ``detail`` of a failure ``code``, with what in ``url`` may be why: see the module.

    That is also a mark behind it, from a list in some language of programming.
    """
    if code not in ("dns", "bad-url") and not code.startswith("http-4"):
        return detail
    what = invisible_in(url) or _mark_behind(url)
    return f"{detail or failure_kind(code).meaning}; the URL {what}" if what else detail
