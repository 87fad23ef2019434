"""The ledger: what a worker is doing, in a file that is mapped into its memory.

A worker that is killed cannot report. So, for each item, it stores a mark (``core.item_states``) into a
shared mapping: two stores into memory, no system call. The kernel keeps the pages when the process
dies, whatever kills it; the supervisor, or the next run, reads from them which files of a batch are
published and which were in flight at that instant.

A slot outlives its batch: when the outcome is sent, it is not yet in the journal, and when the
supervisor is killed just then, the marks are the only record. It is taken for another batch when no
older one is left. By then the outcome is in the journal: the worker asks for one batch at a time,
only when a slot is vacant, and the supervisor reads in order; so the answer to that request proves
that what was sent before it was read, and of the vacant slots the oldest is such a one.

Layout: ``slots`` slots, each a header (u64 ``seq + 1``, 0 when never used; u64 count) and room for the
marks of ``BATCH_ITEMS`` items. One file per worker process under ``DEST/.downloader/``.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from downloader.core import item_states as core_marks
from downloader.core.item_states import ItemStates
from downloader.errors import DestinationError, JournalError
from downloader.messages import BATCH_ITEMS

__all__ = ["Ledger", "Slot", "read"]

_HEADER = 16
_SLOT = _HEADER + core_marks.ITEM_BYTES * BATCH_ITEMS


class Slot:
    """The marks of one leased batch."""

    __slots__ = ("_header", "marks", "number")

    def __init__(self, number: int, view: memoryview, seq: int, count: int) -> None:
        self.number = number
        self._header = view[:_HEADER].cast("Q")
        self.marks = ItemStates(count, view[_HEADER:])
        # Clear before naming the owner: a reader must never see old marks under a new batch.
        self._header[0] = 0
        self.marks.clear()
        self._header[1] = count
        self._header[0] = seq + 1

    def free(self) -> None:
        """Let go of the memory; what is written in it stays."""
        self._header.release()
        self.marks.release()


class Ledger:
    """A worker's own ledger, made anew.

    Raises DestinationError when the file cannot be made (its blocks are allocated at once: on a full
    disk this must fail here, not as a bus error when a page is written).
    """

    def __init__(self, path: Path, slots: int) -> None:
        size = slots * _SLOT
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, size)
                self._map = mmap.mmap(fd, size)
            finally:
                os.close(fd)
        except OSError as error:
            room = "; free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise DestinationError(f"{path}: {error.strerror}{room}") from error
        self._vacant = deque(range(slots))

    @property
    def vacant(self) -> int:
        """How many more batches can be opened."""
        return len(self._vacant)

    def open(self, seq: int, count: int) -> Slot:
        """A slot for batch ``seq``; IndexError when there is none vacant."""
        number = self._vacant.popleft()
        view = memoryview(self._map)[number * _SLOT : (number + 1) * _SLOT]
        return Slot(number, view, seq, count)

    def close(self, slot: Slot) -> None:
        """The outcome of its batch is sent; ``slot`` is the last to be used again."""
        slot.free()
        self._vacant.append(slot.number)


def read(path: Path) -> Iterator[tuple[int, ItemStates]]:
    """The batches in a dead worker's ledger, open or reported: number and a copy of the marks.

    Nothing where the file does not exist (the worker died before it made it).
    Raises JournalError when the file is not a ledger.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from error
    for start in range(0, len(content) - _SLOT + 1, _SLOT):
        slot = memoryview(bytearray(content[start : start + _SLOT]))
        owner, count = slot[:_HEADER].cast("Q")
        if not owner:
            continue
        if count > BATCH_ITEMS:
            raise JournalError(f"{path}: not a ledger of this version; --restart begins anew")
        yield owner - 1, ItemStates(count, slot[_HEADER:])
