"""What the names of a response's header fields mean, without their values. Pure.

A server sends the same names with nearly every response, so this is computed once for each set of names.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MAX_USUAL", "HeaderShape", "shape_of"]

MAX_USUAL = 100
"""The maximum number of names in a set that is kept: a server may send thousands, others each time."""


class HeaderShape(NamedTuple):
    """The meaning of a response's header field names; names are as the server spells them.

    ``plain``: the response has a length and needs no further check.
    """

    plain: bool
    chunked: bytes = b""
    length: bytes = b""
    retry_after: bytes = b""
    date: bytes = b""
    via: bool = False
    set_cookie: bytes = b""


def shape_of(names: tuple[bytes, ...], limited: bool) -> HeaderShape:
    """Return the meaning of ``names``; ``limited``: bodies have a maximum size."""
    spelt = {name.lower(): name for name in names}
    odd = b"content-encoding" in spelt or b"set-cookie" in spelt
    if len(spelt) < len(names):
        # Of one spelling the parser has the first value, and of two there may be other codings.
        odd = odd or [name.lower() for name in names].count(b"transfer-encoding") > 1
    chunked = spelt.get(b"transfer-encoding", b"")
    length = spelt.get(b"content-length", b"")
    via = b"via" in spelt
    return HeaderShape(
        plain=bool(length) and not (odd or chunked or via or limited),
        chunked=b"" if odd else chunked,
        length=b"" if odd else length,
        retry_after=spelt.get(b"retry-after", b""),
        date=spelt.get(b"date", b""),
        via=via,
        set_cookie=spelt.get(b"set-cookie", b""),
    )
