"""Hold free memory, so that the host need not hand it out while a client is measured.

On a virtual machine the first touch of a page is work of the host and costs more than storing a small file.
Where free pages are reported to the host, they are cold again within seconds: the same client took twice as
long when it began six seconds later. So nearly all free memory is held here and released as others need it:
the pages that a client gets were in use a moment ago, whenever it begins.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil

__all__ = ["LEVEL", "PIECE", "REPORTED", "Ballast"]

REPORTED: Final = Path("/sys/module/page_reporting").exists()
"""True when free memory is reported to a host, which takes it away."""

PIECE: Final = 4 << 20
LEVEL: Final = 512 << 20  # stays free, so that nothing has to wait for a release, or runs out of memory
_NEARLY: Final = 128 << 20
_EVERY: Final = 0.002  # seconds; what a client takes in that time is a small part of the level
_PATIENCE: Final = 60.0
_MOST: Final = 24 << 30


def _free() -> int:
    return int(psutil.virtual_memory().free)


class Ballast:
    """Memory that is held, only within ``keeping`` and only where ``needed``. ``free`` returns the free
    bytes."""

    def __init__(self, needed: bool = REPORTED, free: Callable[[], int] = _free) -> None:
        self._needed = needed
        self._free = free
        self._pieces: list[mmap.mmap] = []
        self._over = threading.Event()

    @property
    def size(self) -> int:
        """Bytes held, and released when others need them."""
        return len(self._pieces) * PIECE

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Hold free memory while the context is open."""
        if not self._needed:
            yield
            return
        helper = threading.Thread(target=self._keep)
        helper.start()
        try:
            yield
        finally:
            self._over.set()
            helper.join()

    def settle(self) -> None:
        """Wait until memory that was released a moment ago is held again."""
        give_up = time.monotonic() + _PATIENCE
        while self._needed and self._free() > LEVEL + _NEARLY and time.monotonic() < give_up:
            time.sleep(_EVERY)

    def _keep(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
        pieces = self._pieces
        while not self._over.wait(_EVERY):
            spare = (self._free() - LEVEL) // PIECE
            while spare < 0 and pieces:
                pieces.pop().close()
                spare += 1
            if spare > 0 and self.size < _MOST:
                # A few pages at a time: another process may need them meanwhile.
                pieces += [mmap.mmap(-1, PIECE, flags) for _ in range(min(spare, 8))]
        while pieces:
            pieces.pop().close()
