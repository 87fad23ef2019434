"""Harm done to a stream of bytes, and where it is cut into pieces; both by parts of its length."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

__all__ = ["cut_up", "harmed"]


def harmed(stream: bytes, harm: Iterable[tuple[float, bytes, int]]) -> bytes:
    """At each place what is put there, in the place of so many bytes."""
    for where, put, instead in harm:
        at = int(where * len(stream))
        stream = stream[:at] + put + stream[at + instead :]
    return stream


def cut_up(stream: bytes, cuts: Iterable[float]) -> list[bytes]:
    """``stream``, cut at these places."""
    edges = [0, *sorted(int(cut * len(stream)) for cut in cuts), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]
