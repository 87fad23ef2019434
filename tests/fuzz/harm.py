"""Damage a stream of bytes and cut it into pieces; both positions are fractions of its length."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

__all__ = ["cut_up", "harmed"]


def harmed(stream: bytes, harm: Iterable[tuple[float, bytes, int]]) -> bytes:
    """Return ``stream`` with bytes replaced at each place."""
    for where, put, instead in harm:
        at = int(where * len(stream))
        stream = stream[:at] + put + stream[at + instead :]
    return stream


def cut_up(stream: bytes, cuts: Iterable[float]) -> list[bytes]:
    """Return ``stream``, cut at these places."""
    edges = [0, *sorted(int(cut * len(stream)) for cut in cuts), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]
