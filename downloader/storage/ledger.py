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

Where most items of a batch are finished and the others take long (they wait for a retry, or their server
is slow), the batch is moved out of its slot: its states so far go to the journal, and each open item gets
an entry of its own (``Ledger.narrow``). So such items do not hold back other batches. An entry is reused
when two leases have arrived after its batch was reported: one of them may answer an earlier request.

Layout: a header of four u64 (``_MAGIC``, items of a slot, slots, entries used so far); the slots, each with
a header (u64 ``seq + 1``, 0 if never used; u64 count) and room for the states of so many items; the entries
(``_ENTRY``). The ledger of an earlier version has no entries, and no header, or one of two u64. There is
one file per worker process under ``DEST/.downloader/``.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence

from downloader.core import item_states
from downloader.core.file_errors import advice
from downloader.core.item_states import IN_FLIGHT, UNOWNED, UNTOUCHED, ItemStates
from downloader.errors import DestinationError, JournalError
from downloader.files.directory import Entry, UnsafeFile
from downloader.messages import BATCH_ITEMS

__all__ = ["Entries", "Ledger", "Slot", "read", "read_merged", "slots_for"]

_HEADER = 16
# What a ledger begins with; it is not the header of a slot.
_MAGIC = (1 << 64) - 2
_BEGIN = struct.Struct("<QQQQ")
# The same of an earlier version, followed by the items of a slot, where these are not BATCH_ITEMS.
_SIZED = (1 << 64) - 1
# An item that has an entry of its own: seq + 1 (0 if the entry was never used), state, CRC-32, the index of
# the item, and the number of items of its batch. In words of eight bytes: seq + 1, state, CRC-32, the rest.
_ENTRY = struct.Struct("<QqQII")
_WORDS = _ENTRY.size // 8
# The disk gets room for so many entries at a time.
_TOGETHER = 4096
_MOST_SLOTS = 64
_MOST_ITEMS = 80_000  # in all slots together, where batches are large
_MOST_BYTES = 40 << 20  # of a ledger: two slots of the largest batches, and the entries


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


class _Column:
    """One of the arrays of ``ItemStates`` for some of the items: by the index of an item, kept in entries.

    ``places``: the word in which an item has its value, without ``offset``.
    """

    __slots__ = ("_offset", "_places", "_words")

    def __init__(self, words: memoryview, places: dict[int, int], offset: int) -> None:
        self._words = words
        self._places = places
        self._offset = offset

    def __getitem__(self, index: int) -> int:
        return self._words[self._places[index] + self._offset]

    def __setitem__(self, index: int, value: int) -> None:
        self._words[self._places[index] + self._offset] = value


class Entries(ItemStates):
    """The states of those items of a batch that have entries: ``ItemStates`` and a slot in one."""

    __slots__ = ("places",)

    def __init__(self, words: memoryview, places: dict[int, int], count: int) -> None:
        self.count = count
        self.places = places
        self._states = _Column(words, places, 1)  # type: ignore[assignment]
        self._crcs = _Column(words, places, 2)  # type: ignore[assignment]

    @property
    def marks(self) -> ItemStates:
        """See ``Slot``."""
        return self

    def publish_intents(self) -> None:
        """See ``ItemStates``."""
        for index in self.places:
            if (state := self._states[index]) < UNOWNED:
                self._states[index] = -1 - state

    def drop_intents(self) -> dict[int, int]:
        """See ``ItemStates``."""
        sizes = {
            i: item_states.decoded(self._states[i])[0] for i in self.places if self._states[i] < UNOWNED
        }
        for index in sizes:
            self._states[index] = UNTOUCHED
        return sizes

    def in_flight(self) -> list[int]:
        """See ``ItemStates``."""
        return [i for i in self.places if (state := self._states[i]) == IN_FLIGHT or state < UNOWNED]

    def known(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return states and checksums by index."""
        return {i: self._states[i] for i in self.places}, {i: self._crcs[i] for i in self.places}

    def packed(self) -> bytes:
        """See ``ItemStates``; b"" if nothing is known of any of the items."""
        states, crcs = self.known()
        return item_states.changed(b"", self.count, states, crcs) if any(states.values()) else b""

    def release(self) -> None:
        """Do nothing: the words belong to the ledger."""

    free = release


def slots_for(connections: int, items: int) -> int:
    """Return how many batches of ``items`` items a worker with so many connections may have open."""
    slots = min(connections, _MOST_SLOTS - 4) + 4
    return slots if items <= BATCH_ITEMS else min(slots, max(2, _MOST_ITEMS // items))


def _slot_bytes(items: int) -> int:
    return -(-(_HEADER + item_states.ITEM_BYTES * items) // 16) * 16


class Ledger:
    """The ledger of a worker, newly created, for batches of at most ``items`` items.

    Raises DestinationError if the file cannot be created. The blocks of its slots are allocated at once,
    and those of its ``entries`` before they are used, so that a full disk causes no bus error when a page
    is written.
    """

    def __init__(self, path: Entry, slots: int, items: int = BATCH_ITEMS, entries: int = 0) -> None:
        self._slot = _slot_bytes(items)
        self._first_entry = _BEGIN.size + slots * self._slot
        size = self._first_entry + entries * _ENTRY.size
        try:
            self._fd = path.create()
            os.posix_fallocate(self._fd, 0, self._first_entry)
            os.ftruncate(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
            self._map[: _BEGIN.size] = _BEGIN.pack(_MAGIC, items, slots, 0)
        except UnsafeFile:
            raise
        except OSError as error:
            raise DestinationError(f"{path}: {advice(error)}") from error
        self._vacant = deque(range(slots))
        self._words = memoryview(self._map)[self._first_entry :].cast("q")
        self._begin = items, slots
        self._entries = entries
        self._allocated = 0  # entries that the disk has room for
        self._free: list[int] = []  # the first words of those that are not in use
        # Those of batches that were reported since the last lease, and before that.
        self._reported: list[int] = []
        self._recorded: list[int] = []

    @property
    def vacant(self) -> int:
        """Number of batches that can still be opened."""
        return len(self._vacant)

    def open(self, seq: int, count: int, only: Sequence[int] = ()) -> Slot | Entries:
        """Return a slot for batch ``seq``, which is newly leased. Raises IndexError if none is vacant.

        ``only``: return entries for these items instead, if there are enough.
        """
        self._free += self._recorded
        self._recorded, self._reported = self._reported, []
        if only and (entries := self._take(seq, count, only)) is not None:
            return entries
        number = self._vacant.popleft()
        start = _BEGIN.size + number * self._slot
        view = memoryview(self._map)[start : start + self._slot]
        return Slot(number, view, seq, count)

    def narrow(self, seq: int, slot: Slot, indices: Sequence[int]) -> Entries | None:
        """Return entries for items of batch ``seq`` that are in ``slot``; None if there is no room.

        Close ``slot`` when the states of the other items were sent.
        """
        entries = self._take(seq, slot.marks.count, indices)
        if entries is not None:
            for here, there in zip(entries.arrays, slot.marks.arrays, strict=True):
                for index in indices:
                    here[index] = there[index]
        return entries

    def _take(self, seq: int, count: int, indices: Sequence[int]) -> Entries | None:
        while len(self._free) < len(indices):
            if not self._allocate():
                return None
        words, places = self._words, {}
        for index in indices:
            place = places[index] = self._free.pop()
            # The number of the batch last: a reader must never see old states under a new batch.
            words[place] = words[place + 1] = words[place + 2] = 0
            words[place + 3] = index | count << 32
            words[place] = seq + 1
        return Entries(words, places, count)

    def _allocate(self) -> bool:
        """Make further entries free; return whether there are any."""
        number = min(_TOGETHER, self._entries - self._allocated)
        if not number:
            return False
        try:
            at = self._first_entry + self._allocated * _ENTRY.size
            os.posix_fallocate(self._fd, at, number * _ENTRY.size)
        except OSError:
            return False
        first = self._allocated * _WORDS
        self._free += range(first, first + number * _WORDS, _WORDS)
        self._allocated += number
        _BEGIN.pack_into(self._map, 0, _MAGIC, *self._begin, self._allocated)
        return True

    def close(self, slot: Slot | Entries) -> None:
        """Make ``slot`` vacant after the outcome of its batch was sent; it is the last to be reused."""
        if isinstance(slot, Entries):
            self._reported += slot.places.values()
        else:
            slot.free()
            self._vacant.append(slot.number)


def read(path: Entry) -> Iterator[tuple[int, ItemStates]]:
    """Yield the batches in a ledger, open or reported: the number and a copy of the item states.

    One that was narrowed may come twice, first as it was before that. Yields nothing if the file does not
    exist (the worker died before it created it). Raises JournalError if the file is not a ledger.
    """
    try:
        content = path.read(_MOST_BYTES)
    except FileNotFoundError:
        return
    except UnsafeFile:
        raise
    except OSError as error:
        raise JournalError(f"{path}: {advice(error)}") from error
    begin, items, end, entries = 0, BATCH_ITEMS, len(content), 0
    if len(content) >= _BEGIN.size:
        magic, sized, slots, used = _BEGIN.unpack_from(content)
        if magic == _MAGIC:
            begin, items, entries = _BEGIN.size, sized, used
            end = min(end, begin + slots * _slot_bytes(items))
        elif magic == _SIZED:
            begin, items = _HEADER, sized
        if items > len(content):
            raise _damaged(path)
    size = _slot_bytes(items)
    for start in range(begin, end - size + 1, size):
        slot = memoryview(bytearray(content[start : start + size]))
        owner, count = slot[:_HEADER].cast("Q")
        if not owner:
            continue
        if count > items:
            raise _damaged(path)
        states = ItemStates(count, slot[_HEADER:])
        states.forget_impossible()
        yield owner - 1, states
    if entries:
        yield from _entries(path, content[end : end + entries * _ENTRY.size], items)


def _entries(path: Entry, content: bytes, items: int) -> Iterator[tuple[int, ItemStates]]:
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    whole = len(content) // _ENTRY.size * _ENTRY.size
    for owner, *entry in _ENTRY.iter_unpack(memoryview(content)[:whole]):
        if owner:
            state, crc, index, count = entry
            if not index < count <= items or crc >> 32:
                raise _damaged(path)
            found.setdefault(owner - 1, []).append((state, crc, index, count))
    for seq, entries in found.items():
        marks = ItemStates(max(count for *_, count in entries))
        states, crcs = marks.arrays
        for state, crc, index, _ in entries:
            states[index], crcs[index] = state, crc
        marks.forget_impossible()
        yield seq, marks


def read_merged(path: Entry) -> dict[int, tuple[bytes, list[int]]]:
    """Return, for each batch in a ledger, the packed item states and the items that were in flight.

    Raises JournalError, like ``read``.
    """
    found: dict[int, tuple[bytes, list[int]]] = {}
    for seq, marks in read(path):
        packed, in_flight = marks.packed(), marks.in_flight()
        if seq in found:
            before, others = found[seq]
            count = max(marks.count, len(item_states.unpack(before)[0]))
            packed = item_states.merge(before, packed, count)
            in_flight = sorted({*others, *in_flight})
        found[seq] = packed, in_flight
    return found


def _damaged(path: Entry) -> JournalError:
    return JournalError(
        f"{path}: damaged, or not a ledger of this version; move it away, then run the same command again "
        "(what only it has as stored is compared, or requested again)"
    )
