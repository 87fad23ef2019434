"""Remember when a host was last reached, and answered, by any worker, in memory that all workers share.

A worker that cannot connect cannot tell a dead host from one whose connections the other workers have. So
each notes the hosts that it reaches, and looks here before it judges. The same is true of a host that
closes connections before anything has come on them: others note that it answers. A note is one store of 64
bits, half the time, half a digest of the host: there is nothing to lock, no message, and the size does not
depend on how many hosts a list names. Of two hosts in one slot the last counts; while they are in use, both
are noted again each second.
"""

from __future__ import annotations

import math
import zlib
from typing import Final

__all__ = ["ReachedHosts"]

_TICKS: Final = 8  # a second
_SLOTS: Final = 1 << 17


class ReachedHosts:
    """When each host was last reached, and answered, over ``buffer``: SIZE bytes of zeros at first.

    ``began``: a time (seconds, monotonic) before that of any note.
    """

    SIZE: Final = 2 * _SLOTS * 8

    def __init__(self, buffer: memoryview, began: float) -> None:
        self._slots = buffer.cast("Q")
        self._began = began - 1 / _TICKS  # the first tick is not 0, so that a note is not 0

    def note(self, key: str, now: float, *, answered: bool = False) -> None:
        """Note that host ``key`` was reached at ``now``, and whether it has ``answered``."""
        slot, digest = _place(key)
        self._slots[slot] = noted = digest | int((now - self._began) * _TICKS) & 0xFFFFFFFF
        if answered:
            self._slots[slot + _SLOTS] = noted

    def at(self, key: str) -> float:
        """Return when host ``key`` was last reached, at most 1/8 s too early; -infinity if never."""
        return self._at(*_place(key))

    def answered_at(self, key: str) -> float:
        """Return when host ``key`` has last answered; the same otherwise."""
        slot, digest = _place(key)
        return self._at(slot + _SLOTS, digest)

    def _at(self, slot: int, digest: int) -> float:
        noted = self._slots[slot]
        if not noted or noted & 0xFFFFFFFF00000000 != digest:
            return -math.inf
        return self._began + (noted & 0xFFFFFFFF) / _TICKS


def _place(key: str) -> tuple[int, int]:
    """Return the slot of host ``key``, and its digest in the upper 32 bits.

    Two hosts of one CRC-32 share a note: one that is dead then gets all its retries, as a living one does.
    """
    digest = zlib.crc32(key.encode())
    return digest % _SLOTS, digest << 32
