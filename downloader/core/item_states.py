"""Record, for each item of a batch, what is known about the file under its name.

Two arrays, states (i64) then CRC-32 (u32), little-endian, in the order of the items::

    state 0          nothing is known
    state 1          in flight
    state n >= 2     published, n - 2 bytes long
    state -1         OWNED: not published; that file under the name is the item's own and is to be replaced
    state -2         UNOWNED: not published; that file under the name belongs to no item of this job
    state n <= -3    intent: in flight, and about to be published with -3 - n bytes
    state 2**62      SKIPPED: nothing is to be stored, since an earlier item has the name

To the n of a published item, or of an intent, these are added:

    2**60            FOREIGN: the file belongs to no item of this job, and was kept
    2**59            REPLACED: the file has replaced one that belonged to no item of this job

``decoded`` takes them apart. A FOREIGN file that has changed since is not the item's own: the claim on it
is UNOWNED.

An intent is written before the name appears. After a kill, it distinguishes a file that was published at
that moment (its size and checksum match) from one that was not.

A claim (OWNED, UNOWNED) is about one file, the one that had the name when it was given. In place of the
CRC-32 it has which file that is (``core.ownership``), 0 if there was none, or if it is not known.

The ledger that a worker keeps in shared memory (``downloader.storage.ledger``), the journal's rows and
leases use the same layout. A buffer of ``count`` items is ``12 * count`` bytes long.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from downloader.core.inflate import inflate
from downloader.core.limits import MOST_BATCH_ITEMS
from downloader.messages import Tally

__all__ = [
    "FOREIGN",
    "IN_FLIGHT",
    "ITEM_BYTES",
    "NO_CLAIM",
    "OWNED",
    "REPLACED",
    "SKIPPED",
    "UNOWNED",
    "UNTOUCHED",
    "Claim",
    "ItemState",
    "ItemStates",
    "changed",
    "claimed",
    "claims",
    "decoded",
    "gained",
    "intent",
    "is_stored",
    "merge",
    "pack",
    "published",
    "restored",
    "summed",
    "sums_of",
    "unpack",
    "without",
    "written",
]

UNTOUCHED = 0
IN_FLIGHT = 1
OWNED = -1
UNOWNED = -2
SKIPPED = 1 << 62
FOREIGN = 1 << 60
REPLACED = 1 << 59
ITEM_BYTES = 12
_SIZE = REPLACED - 1
_MOST_SIZE = 1 << 44
_WITHOUT_SIZE = frozenset([UNTOUCHED, IN_FLIGHT, OWNED, UNOWNED, SKIPPED])


@dataclass(frozen=True, slots=True)
class ItemState:
    """One written item: its index in the batch, its size in bytes and its CRC-32.

    ``published`` is False if it was only about to be published. ``flags``: FOREIGN, REPLACED, or 0.
    """

    index: int
    size: int
    crc: int
    published: bool = True
    flags: int = 0

    @property
    def foreign(self) -> bool:
        """Whether the file belongs to no item of the job, and was kept."""
        return bool(self.flags & FOREIGN)

    @property
    def lost(self) -> int:
        """The state of the claim on that file where it is not as it was any more."""
        return UNOWNED if self.flags & FOREIGN else OWNED

    @property
    def state(self) -> int:
        """The state of the item once it is published."""
        return self.size + 2 + self.flags


class Claim(NamedTuple):
    """What is known of the file that has an item's name: OWNED, UNOWNED, or nothing (UNTOUCHED).

    ``file``: which file it is about (``core.ownership``). ``unsynced``: a sync failed, so a file
    that has the right bytes may not have them on the disk.
    """

    state: int = UNTOUCHED
    file: int = 0
    unsynced: bool = False


NO_CLAIM = Claim()


def intent(size: int, flags: int = 0) -> int:
    """Return the state of an item that is about to be published with ``size`` bytes."""
    return -3 - size - flags


def is_stored(state: int) -> bool:
    """Return whether an item with that state is published."""
    return IN_FLIGHT < state < SKIPPED


def decoded(state: int) -> tuple[int, int]:
    """Return size and flags of an item that is published or about to be."""
    both = state - 2 if state > IN_FLIGHT else -3 - state
    return both & _SIZE, both & (FOREIGN | REPLACED)


class ItemStates:
    """The states and checksums of a batch, in a writable buffer of at least ``12 * count`` bytes.

    Without ``buffer``, one is allocated. Recording an item takes two stores. ``publish`` writes the
    checksum first, so that a published state always has its checksum.
    """

    __slots__ = ("_crcs", "_states", "count")

    def __init__(self, count: int, buffer: memoryview | None = None) -> None:
        whole = memoryview(bytearray(ITEM_BYTES * count)) if buffer is None else buffer
        self.count = count
        self._states = whole[: 8 * count].cast("q")
        self._crcs = whole[8 * count : ITEM_BYTES * count].cast("I")

    @property
    def arrays(self) -> tuple[memoryview, memoryview]:
        """States and checksums."""
        return self._states, self._crcs

    def begin(self, index: int) -> None:
        """Mark item ``index`` as in flight."""
        self._states[index] = IN_FLIGHT

    def set(self, index: int, claim: Claim) -> None:
        """Mark item ``index`` as not in flight, with what is known of the file that has its name."""
        self._crcs[index] = claim.file
        self._states[index] = claim.state

    def intend(self, index: int, size: int, crc: int) -> None:
        """Mark item ``index`` as about to be published."""
        self._crcs[index] = crc
        self._states[index] = intent(size)

    def publish(self, index: int, size: int, crc: int, flags: int = 0) -> None:
        """Mark item ``index`` as published, ``size`` bytes long; ``flags``: FOREIGN, REPLACED."""
        self._crcs[index] = crc
        self._states[index] = size + 2 + flags

    def publish_intents(self) -> None:
        """Mark all items as published that were about to be."""
        for index, state in enumerate(self._states):
            if state < UNOWNED:
                self._states[index] = -1 - state  # from -3 - size to size + 2, with the same flags

    def drop_intents(self) -> dict[int, int]:
        """Mark all items as UNTOUCHED that were about to be published; return their sizes, by index."""
        sizes = {index: decoded(state)[0] for index, state in enumerate(self._states) if state < UNOWNED}
        for index in sizes:
            self._states[index] = UNTOUCHED
        return sizes

    def clear(self) -> None:
        """Mark all items as UNTOUCHED."""
        self._states.cast("B")[:] = bytes(8 * self.count)

    def in_flight(self) -> list[int]:
        """Return the indices of the items that are in flight."""
        return [i for i, state in enumerate(self._states) if state == IN_FLIGHT or state < UNOWNED]

    def forget_impossible(self) -> None:
        """Mark the items as UNTOUCHED whose state no item can have: what they are read from is damaged."""
        for index, state in enumerate(self._states):
            both = state - 2 if state > IN_FLIGHT else -3 - state
            if state not in _WITHOUT_SIZE and not 0 <= both - decoded(state)[1] <= _MOST_SIZE:
                self._states[index] = UNTOUCHED

    def packed(self) -> bytes:
        """Return the arrays compressed, for the journal and for messages to other processes."""
        return pack(self._states.tobytes(), self._crcs.tobytes())

    def release(self) -> None:
        """Release the buffer, so that a memory map under it can be closed."""
        self._states.release()
        self._crcs.release()


def pack(states: bytes, crcs: bytes) -> bytes:
    """Compress raw arrays, at level 1: checksums do not compress, and states do at any level."""
    return zlib.compress(states + crcs, 1)


def unpack(packed: bytes) -> tuple[memoryview, memoryview]:
    """Return the two arrays in ``packed``; empty ones for ``b""``.

    Raises ValueError if the bytes are not packed item states.
    """
    if not packed:
        return memoryview(b"").cast("q"), memoryview(b"").cast("I")
    try:
        raw = memoryview(inflate(packed, ITEM_BYTES * MOST_BATCH_ITEMS))
    except ValueError as error:
        raise ValueError(f"damaged marks: {error}") from None
    if len(raw) % ITEM_BYTES:
        raise ValueError(f"damaged marks: {len(raw)} bytes")
    count = len(raw) // ITEM_BYTES
    return raw[: 8 * count].cast("q"), raw[8 * count :].cast("I")


def restored(packed: bytes, count: int) -> ItemStates:
    """Return the states of ``count`` items in ``packed``, in a buffer of their own."""
    result = ItemStates(count)
    for whole, part in zip(result.arrays, unpack(packed), strict=True):
        whole[: len(part)] = part
    return result


def written(packed: bytes) -> Iterator[ItemState]:
    """Yield the items of ``packed`` that are published or were about to be, in ascending order of index."""
    states, crcs = unpack(packed)
    for index, state in enumerate(states):
        if (state > IN_FLIGHT and state != SKIPPED) or state < UNOWNED:
            size, flags = decoded(state)
            yield ItemState(index, size, crcs[index], state > IN_FLIGHT, flags)


def published(packed: bytes) -> Iterator[ItemState]:
    """Yield the published items of ``packed`` in ascending order of index."""
    return (mark for mark in written(packed) if mark.published)


def claims(packed: bytes) -> dict[int, Claim]:
    """Return the claims of the items of ``packed`` that are OWNED or UNOWNED, by index."""
    states, files = unpack(packed)
    return {
        index: Claim(state, files[index]) for index, state in enumerate(states) if UNOWNED <= state <= OWNED
    }


def summed(packed: bytes) -> tuple[int, int]:
    """Return the number of published or SKIPPED items in ``packed``, and the bytes of the former."""
    return sums_of(unpack(packed)[0])


def sums_of(states: memoryview) -> tuple[int, int]:
    """Return the same of ``states`` that are not packed."""
    sizes = [state - 2 for state in states.tolist() if state > IN_FLIGHT]
    size = sum(sizes)
    if size > _SIZE:  # there are flags, or SKIPPED ones; most batches have none
        size = sum([each & _SIZE for each in sizes if each != SKIPPED - 2])
    return len(sizes), size


def gained(older: bytes, newer: bytes, only: Collection[int] = ()) -> Tally:
    """Return what is published in ``newer`` and not written in ``older``.

    ``only``: of these items, if there are any.
    """
    known = {mark.index for mark in written(older)}
    found = [
        mark for mark in published(newer) if mark.index not in known and (not only or mark.index in only)
    ]
    own = [mark for mark in found if not mark.foreign]
    replaced = sum(1 for mark in own if mark.flags & REPLACED)
    size = sum(mark.size for mark in own)
    return Tally(stored=len(own), skipped=len(found) - len(own), bytes=size, replaced=replaced)


def merge(older: bytes, newer: bytes, count: int) -> bytes:
    """Return the combined states of ``count`` items, from two packed sources.

    A published item stays published; if both sources have it as published, ``newer`` wins. A claim (OWNED,
    UNOWNED) stays until the item is published, or another one is given. An intent stays as long as nothing
    else is known. The state "in flight" is dropped.
    """
    merged = ItemStates(count)
    states, crcs = merged.arrays
    for packed in (older, newer):
        theirs, sums = unpack(packed)
        for index, state in enumerate(theirs):
            if _tells_more(state, states[index]):
                states[index], crcs[index] = state, sums[index]
    return merged.packed()


def _tells_more(state: int, known: int) -> bool:
    """Return whether ``state`` replaces the older state ``known``."""
    if state > IN_FLIGHT:
        return True
    if state >= UNTOUCHED or known > IN_FLIGHT:
        return False
    return state >= UNOWNED or known not in (OWNED, UNOWNED)


def without(packed: bytes, count: int, indices: Collection[int]) -> bytes:
    """Return the states of ``count`` items as in ``packed``, with those of ``indices`` reset."""
    return changed(packed, count, dict.fromkeys(indices, UNTOUCHED))


def claimed(packed: bytes, count: int, given: Mapping[int, Claim]) -> bytes:
    """Return the states of ``count`` items as in ``packed``, with these claims in place of some."""
    states = {index: claim.state for index, claim in given.items()}
    return changed(packed, count, states, {index: claim.file for index, claim in given.items()})


def changed(
    packed: bytes, count: int, states: Mapping[int, int], crcs: Mapping[int, int] | None = None
) -> bytes:
    """Return the states of ``count`` items as in ``packed``, some replaced by ``states`` and ``crcs``."""
    result = ItemStates(count)
    own, sums = result.arrays
    for index, (state, crc) in enumerate(zip(*unpack(packed), strict=True)):
        if state != IN_FLIGHT:
            own[index], sums[index] = state, crc
    for index, state in states.items():
        own[index], sums[index] = state, (crcs or {}).get(index, 0)
    return result.packed()
