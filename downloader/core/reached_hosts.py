"""Remember when any worker of a run last reached a host, in memory that all workers share.

A worker that cannot connect cannot tell a dead host from one whose connections the other workers have. So
each notes the hosts that it reaches, and looks here before it judges. A note is one store of 64 bits, half
the time, half a digest of the host: there is nothing to lock, no message, and the size does not depend on
how many hosts a list names. Of two hosts in one slot the last counts; while they are in use, both are noted
again each second.
"""

from __future__ import annotations

import math
import zlib
from typing import Final

__all__ = ["ReachedHosts"]

_TICKS: Final = 8  # a second
_SLOTS: Final = 1 << 17


class ReachedHosts:
    """When each host was last reached, over ``buffer``: SIZE bytes of zeros at first.

    ``began``: a time (seconds, monotonic) before that of any note.
    """

    SIZE: Final = _SLOTS * 8

    def __init__(self, buffer: memoryview, began: float) -> None:
        self._slots = buffer.cast("Q")
        self._began = began - 1 / _TICKS  # the first tick is not 0, so that a note is not 0

    def note(self, key: str, now: float) -> None:
        """Note that host ``key`` was reached at ``now``."""
        slot, digest = _place(key)
        self._slots[slot] = digest | int((now - self._began) * _TICKS) & 0xFFFFFFFF

    def at(self, key: str) -> float:
        """Return when host ``key`` was last reached, at most 1/8 s too early; -infinity if never."""
        slot, digest = _place(key)
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
