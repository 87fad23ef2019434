"""Validate request header fields given by a user or a source."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

import msgspec

from downloader.errors import UNDECODABLE

__all__ = ["given_twice", "header_problem", "row_headers"]

# Header fields that a request must not have twice (RFC 9110). Cookies are joined: see ``HttpSession``.
_ONCE = frozenset({"authorization", "content-length", "content-type", "date", "expect", "from", "host"}) | {
    *("if-modified-since", "if-range", "if-unmodified-since", "max-forwards", "proxy-authorization"),
    *("range", "referer", "user-agent"),
}
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
# Fields that the client itself decides: framing, the connection, the host, and which bytes it asks for.
_OURS: Final = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"}
    | {"host", "http2-settings", "if-match", "if-modified-since", "if-none-match", "if-range"}
    | {"if-unmodified-since", "keep-alive", "proxy-authorization", "proxy-connection", "range", "te"}
    | {"trailer", "transfer-encoding", "upgrade"}
)


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


def row_headers(given: Any) -> tuple[tuple[str, str], ...]:
    """Return the header fields that a row of a list gives for its request.

    ``given`` is a JSON object of text, the mapping itself, or lines ``Name: value``. Raises ValueError,
    whose message contains no value, nor a name that is not one.
    """
    if isinstance(given, (str, bytes)):
        try:
            given = msgspec.json.decode(given)
        except UNDECODABLE:
            raise ValueError("not a JSON object") from None
    if isinstance(given, list) and all(type(line) is str for line in given):
        pairs = [
            (name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in given)
        ]
    elif isinstance(given, dict):
        pairs = [pair for pair in given.items() if pair[1] is not None]
    else:
        raise ValueError("not a JSON object")
    seen: set[str] = set()
    for name, value in pairs:
        if type(value) is not str:
            raise ValueError("a value is not text")
        if problem := header_problem(name, value):
            raise ValueError(problem)
        if name.lower() in _OURS:
            raise ValueError(f"{name} is decided by the downloader")
        if name.lower() in seen:
            raise ValueError(f"{name} is given twice")
        seen.add(name.lower())
    return tuple((name, value.strip()) for name, value in pairs)
