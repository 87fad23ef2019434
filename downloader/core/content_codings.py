"""Read a Content-Encoding: which codings a body has, and which of its words mean none (RFC 9110 §8.4).

Servers put words there that are no codings: ``none``, a charset, ``aws-chunked`` of an upload. Their bodies
are as they are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["Codings", "read_codings"]

# IANA's registry, without identity. A body in one of these is not what the file is.
_REGISTERED: Final = frozenset(
    {
        *("aes128gcm", "br", "compress", "dcb", "dcz", "deflate"),
        *("exi", "gzip", "pack200-gzip", "x-compress", "x-gzip", "zstd"),
    }
)


class Codings(NamedTuple):
    """``known``: the codings of a body that are registered, in the order in which they were applied.
    ``others``: words that are none."""

    known: tuple[str, ...]
    others: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join((*self.others, *self.known))


def read_codings(field: str) -> Codings:
    """Return the codings that ``field``, a Content-Encoding, has; in lower case, without identity."""
    words = [word for each in field.lower().split(",") if (word := each.strip()) not in ("", "identity")]
    return Codings(
        tuple(word for word in words if word in _REGISTERED),
        tuple(word for word in words if word not in _REGISTERED),
    )
