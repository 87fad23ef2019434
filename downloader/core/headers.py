"""Validate request header fields given by a user or a source."""

from __future__ import annotations

import re

__all__ = ["header_problem"]

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
