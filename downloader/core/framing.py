"""Decide how the body of a response is delimited (RFC 9112 §6.3), by its header fields. Pure.

Both clients go by it: llhttp accepts a subset of this, and the rest comes to http.client's parser, which
has the decision of this module in the place of its own (``http.response``). A length that one part of a
client knows and the part that reads does not lets a body that was cut pass for a whole one.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["body_length", "is_chunked"]

_MAX_DIGITS = 18  # the most that 64 bits hold in any case
_BLANKS = " \t"


def body_length(lengths: Sequence[str], codings: Sequence[str]) -> int | None:
    """Return the length of a body, None where its chunks or the end of the connection delimit it.

    ``lengths`` and ``codings`` are the values of the fields Content-Length and Transfer-Encoding. Equal
    lengths count as one, in one field or several (RFC 9110 §8.6), and so do equal codings: an application
    and its server may both state chunks, and there is one kind of them. Chunks take precedence.

    Raises ValueError, with a clause, where the end of the body cannot be known.
    """
    if _codings(codings) and not is_chunked(codings):
        shown = ", ".join(codings).strip(_BLANKS).lower()
        raise ValueError(f"Transfer-Encoding {shown[:40]!r} is not known")
    if is_chunked(codings) or not lengths:
        return None
    values = {_number(value.strip(_BLANKS)) for line in lengths for value in line.split(",")}
    if len(values) > 1:
        raise ValueError("the Content-Length has several values")
    return values.pop()


def is_chunked(codings: Sequence[str]) -> bool:
    """Return whether a body with these values of Transfer-Encoding comes in chunks only."""
    return _codings(codings) == {"chunked"}


def _codings(values: Sequence[str]) -> set[str]:
    each = (coding.strip(_BLANKS).lower() for value in values for coding in value.split(","))
    return set(each) - {"", "identity"}  # RFC 2616 had identity: it changes nothing


def _number(value: str) -> int:
    # int() also takes signs, underscores, blanks, and digits outside ASCII.
    if not (value.isascii() and value.isdigit()):
        raise ValueError("the Content-Length is not a number")
    if len(value.lstrip("0")) > _MAX_DIGITS:
        raise ValueError("the Content-Length is not a possible number")
    return int(value.lstrip("0") or "0")
