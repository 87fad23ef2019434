"""Record what a worker is doing in its ledger, a file that is mapped into memory.

A worker that is killed cannot report. So it records the state of each item (``core.item_states``) in a
shared mapping: two stores into memory, no system call. The kernel keeps the pages when the process dies,
whatever kills it. The supervisor, or the next run, reads from them which files of a batch are published
and which were in flight at that moment.

A slot is kept after its batch ends: when the outcome is sent it is not in the journal yet, and if the
supervisor is killed then, the slot is the only record. The slot that has been vacant longest is reused
first. By then its outcome is in the journal: the worker requests one batch at a time, only when a slot is
vacant, and the supervisor reads messages in order. So a new batch proves that the messages sent before the
request have been read, and the outcome of the oldest vacant slot is among these.

Layout: ``slots`` slots, each with a header (u64 ``seq + 1``, 0 if never used; u64 count) and room for the
states of ``BATCH_ITEMS`` items. For another number of items, that number precedes the slots. There is one
file per worker process under ``DEST/.downloader/``.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections import deque
from collections.abc import Iterator

from downloader.core import item_states as core_marks
from downloader.core.item_states import ItemStates
from downloader.errors import DestinationError, JournalError
from downloader.files.directory import Entry, UnsafeFile
from downloader.messages import BATCH_ITEMS

__all__ = ["Ledger", "Slot", "read", "slots_for"]

_HEADER = 16
# The first header of a ledger whose slots have another size than BATCH_ITEMS: this, and their items.
_SIZED = (1 << 64) - 1
_MOST_SLOTS = 64
_MOST_ITEMS = 80_000  # in all slots together, where batches are large
_MOST_BYTES = 32 << 20  # of a ledger: two slots of the largest batches


class Slot:
    """The item states of one leased batch."""

    __slots__ = ("_header", "marks", "number")

    def __init__(self, number: int, view: memoryview, seq: int, count: int) -> None:
        self.number = number
        self._header = view[:_HEADER].cast("Q")
        self.marks = ItemStates(count, view[_HEADER:])
        # Clear before setting the batch number: a reader must never see old states under a new batch.
        self._header[0] = 0
        self.marks.clear()
        self._header[1] = count
        self._header[0] = seq + 1

    def free(self) -> None:
        """Release the views of the memory; its content stays."""
        self._header.release()
        self.marks.release()


def slots_for(connections: int, items: int) -> int:
    """Return how many batches of ``items`` items a worker with so many connections may have open."""
    slots = min(connections, _MOST_SLOTS - 4) + 4
    return slots if items <= BATCH_ITEMS else min(slots, max(2, _MOST_ITEMS // items))


def _slot_bytes(items: int) -> int:
    return -(-(_HEADER + core_marks.ITEM_BYTES * items) // 16) * 16


class Ledger:
    """The ledger of a worker, newly created, for batches of at most ``items`` items.

    Raises DestinationError if the file cannot be created. Its blocks are allocated at once, so that a full
    disk causes an error here, not a bus error when a page is written.
    """

    def __init__(self, path: Entry, slots: int, items: int = BATCH_ITEMS) -> None:
        self._slot = _slot_bytes(items)
        self._start = 0 if items == BATCH_ITEMS else _HEADER
        size = self._start + slots * self._slot
        try:
            fd = path.create()
            try:
                os.posix_fallocate(fd, 0, size)
                self._map = mmap.mmap(fd, size)
                if self._start:
                    self._map[:_HEADER] = struct.pack("QQ", _SIZED, items)
            finally:
                os.close(fd)
        except UnsafeFile:
            raise
        except OSError as error:
            room = "; free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise DestinationError(f"{path}: {error.strerror}{room}") from error
        self._vacant = deque(range(slots))

    @property
    def vacant(self) -> int:
        """Number of batches that can still be opened."""
        return len(self._vacant)

    def open(self, seq: int, count: int) -> Slot:
        """Return a slot for batch ``seq``. Raises IndexError if none is vacant."""
        number = self._vacant.popleft()
        start = self._start + number * self._slot
        view = memoryview(self._map)[start : start + self._slot]
        return Slot(number, view, seq, count)

    def close(self, slot: Slot) -> None:
        """Make ``slot`` vacant after the outcome of its batch was sent; it is the last to be reused."""
        slot.free()
        self._vacant.append(slot.number)


def read(path: Entry) -> Iterator[tuple[int, ItemStates]]:
    """Yield the batches in a ledger, open or reported: the number and a copy of the item states.

    Yields nothing if the file does not exist (the worker died before it created it). Raises JournalError
    if the file is not a ledger.
    """
    try:
        content = path.read(_MOST_BYTES)
    except FileNotFoundError:
        return
    except UnsafeFile:
        raise
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from error
    begin, items = 0, BATCH_ITEMS
    if len(content) >= _HEADER and struct.unpack_from("QQ", content)[0] == _SIZED:
        begin, items = _HEADER, struct.unpack_from("QQ", content)[1]
        if items > len(content):
            raise _damaged(path)
    size = _slot_bytes(items)
    for start in range(begin, len(content) - size + 1, size):
        slot = memoryview(bytearray(content[start : start + size]))
        owner, count = slot[:_HEADER].cast("Q")
        if not owner:
            continue
        if count > items:
            raise _damaged(path)
        yield owner - 1, ItemStates(count, slot[_HEADER:])


def _damaged(path: Entry) -> JournalError:
    return JournalError(f"{path}: not a ledger of this version; --restart begins anew")
