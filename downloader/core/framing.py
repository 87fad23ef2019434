"""Decide how the body of a response is delimited (RFC 9112 §6.3), by its header fields. Pure.

Both clients go by it: llhttp accepts a subset of this, and the rest comes to http.client's parser, which
has the decision of this module in the place of its own (``http.response``). A length that one part of a
client knows and the part that reads does not lets a body that was cut pass for a whole one.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["body_length"]

_MAX_DIGITS = 18  # the most that 64 bits hold in any case
_BLANKS = " \t"


def body_length(lengths: Sequence[str], codings: Sequence[str]) -> int | None:
    """Return the length of a body, None where its chunks or the end of the connection delimit it.

    ``lengths`` and ``codings`` are the values of the fields Content-Length and Transfer-Encoding. Equal
    lengths count as one, in one field or several (RFC 9110 §8.6). Chunks take precedence.

    Raises ValueError, with a clause, where the end of the body cannot be known.
    """
    coding = ", ".join(codings).strip(_BLANKS).lower()
    if coding not in ("", "identity", "chunked"):
        raise ValueError(f"Transfer-Encoding {coding[:40]!r} is not known")
    if coding == "chunked" or not lengths:
        return None
    values = {_number(value.strip(_BLANKS)) for line in lengths for value in line.split(",")}
    if len(values) > 1:
        raise ValueError("the Content-Length has several values")
    return values.pop()


def _number(value: str) -> int:
    # int() also takes signs, underscores, blanks, and digits outside ASCII.
    if not (value.isascii() and value.isdigit()):
        raise ValueError("the Content-Length is not a number")
    if len(value.lstrip("0")) > _MAX_DIGITS:
        raise ValueError("the Content-Length is not a possible number")
    return int(value.lstrip("0") or "0")
