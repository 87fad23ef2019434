"""Validate request header fields given by a user or a source."""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["given_twice", "header_problem"]

# Header fields that a request must not have twice (RFC 9110). Cookies are joined: see ``HttpSession``.
_ONCE = frozenset({"authorization", "content-length", "content-type", "date", "expect", "from", "host"}) | {
    *("if-modified-since", "if-range", "if-unmodified-since", "max-forwards", "proxy-authorization"),
    *("range", "referer", "user-agent"),
}
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")


def header_problem(name: str, value: str) -> str:
    """Return why a header field cannot be sent (RFC 9110 §5), as a clause; "" if it can."""
    if not _NAME.match(name):
        return "what stands before the colon is not a header's name, as in 'Name: value'"
    if re.search(r"[\r\n\0]", value):
        return f"the value of {name} has a line break or NUL in it"
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return f"the value of {name} is not Latin-1, as headers are"
    return ""


def given_twice(headers: tuple[tuple[str, str], ...]) -> str:
    """Return the name of a field that is given twice and that a request may have only once, else "".

    Two fields of one name are sent as two lines. Servers refuse such a request, or use either of them.
    """
    given = Counter(name.lower() for name, _ in headers)
    return next((name for name, _ in headers if given[name.lower()] > 1 and name.lower() in _ONCE), "")
