"""Read a list of URLs: one file or several, of any of the formats in ``lists``, or standard input.

A list is read as a stream, so memory does not grow with its length. URLs and header fields can carry
secrets, so the journal stores positions in the list, and an earlier batch is recreated by reading the list
again.

The cursor of a single text file of URLs is a ``Place`` (``lines``). That of every other list is a
``Cursor``, which also records the file, those before it, and the options that decide what a row means.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from downloader.core.batch_size import MOST_OF_BATCH, MOST_OF_ITEM, MOST_OF_SHARD, cut, weight
from downloader.core.column_types import ColumnTypes, joined, settled
from downloader.core.name_list import decode_names
from downloader.core.naming import shown
from downloader.core.redact import NAMING
from downloader.errors import UNDECODABLE, ConfigError, SourceError
from downloader.messages import Item, Page, Recall
from downloader.process.long_work import Pauses, give_way
from downloader.sources.lines import REMEDY
from downloader.sources.lists.columns import TooManyColumns, check_kept
from downloader.sources.lists.files import ListFile
from downloader.sources.lists.fingerprints import Fingerprints
from downloader.sources.lists.items import ItemMaker, encodable
from downloader.sources.lists.open_rows import Reading, check_file, open_rows
from downloader.sources.lists.rows import Chunk, Rows
from downloader.sources.lists.rows import joined as joined_chunks

__all__ = ["Cursor", "UrlLister"]

_encode = msgspec.msgpack.encode
# An item takes no more bytes than this, beside its columns: its URL and its name, twice, and their escapes.
_TIMES, _OVERHEAD = 8, 700


class Cursor(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A position in a list of several files, or in one with columns.

    ``options``: CRC-32 of the options that decide what a row means. ``file``: number of the file, ``name``
    its name below the directory or pattern, ``before``: CRC-32 of names and contents of the files before
    it. ``place``: the position in it, as its ``Rows`` give it; b"" is its beginning. ``skip``: rows behind
    that position, of those that were read together, which are too large for one batch.
    """

    options: int
    file: int
    name: bytes
    before: int
    place: bytes
    skip: int = 0


class _Read(NamedTuple):
    """Rows that were read together, and their items."""

    chunk: Chunk
    items: list[Item]


@contextlib.contextmanager
def _never_started() -> Iterator[None]:
    """Make a SourceError a ConfigError: the list has given no item, so nothing was started."""
    try:
        yield
    except SourceError as error:
        raise ConfigError(str(error)) from error


class UrlLister:
    """The lister of ``files``; see ``Lister``. Raises SourceError, and ConfigError if a column is missing.

    ConfigError is also raised where a file is found to be no list, or not to be readable, before any item
    was returned. ``shown``: the name of the list in messages. ``options``: see ``Cursor``. ``mirror``: the
    layout is; ``colon``: see ``core.naming.url_path``. ``full``: the store has shards, so a page has as
    many items as were asked for, as long as its file has them and a batch has room for them. ``cut``,
    ``literal``, ``naming``: see ``ItemMaker``.
    """

    def __init__(
        self,
        files: Sequence[ListFile],
        shown: str,
        reading: Reading,
        name_key: bytes,
        *,
        options: int,
        mirror: bool,
        colon: str,
        full: bool = False,
        cut: bool = False,
        literal: bool = False,
        naming: int = NAMING,
    ) -> None:
        self._full = full
        self._cut = cut
        self._files = files
        self._shown = shown
        self._reading = reading
        self._name_key = name_key
        self._options = options
        self._mirror = mirror
        self._colon = colon
        self._literal = literal
        self._naming = naming
        # Journals of earlier versions have bare places, which say all there is to say of such a list.
        self._bare = len(files) == 1 and not files[0].name and files[0].form == "txt"
        self._prints = Fingerprints(files)
        self._grown = b""  # the cursor behind the former end of the list, if its last line has grown
        self._number = -1  # of the open file; opened only when it is read, since a pipe may be silent
        self._rows: Rows
        self._maker: ItemMaker
        self._is_checked = False
        self._kinds: list[dict[str, str]] = []  # of the columns to keep, of each file that was checked
        self._recalled: tuple[int, _Read] | None = (
            None  # of the last batch, if it is a part of what was read
        )

    def close(self) -> None:
        """See ``Closes``."""
        if self._number >= 0:
            self._rows.close()
            self._number = -1

    def _open(self, number: int) -> None:
        self.close()
        file = self._files[number]
        self._rows = open_rows(file, self._name_of(file), self._reading)
        self._maker = ItemMaker(
            self._rows.columns,
            self._name_key,
            mirror=self._mirror,
            colon=self._colon,
            checksums=self._reading.checksums,
            cut=self._cut,
            literal=self._literal,
            naming=self._naming,
        )
        self._number = number

    def _name_of(self, file: ListFile) -> str:
        """Return the name of ``file`` in messages."""
        return shown(file.path.encode("utf-8", "backslashreplace").decode()) if file.name else self._shown

    def _where(self, number: int) -> str:
        file = self._files[self._number]
        place = f"{self._rows.unit} {number}"
        return f"{shown(file.name)} {place}" if file.name else place

    # see Lister

    def column_types(self, before: str, *, begun: bool) -> str:
        """See ``DeclaresColumns``."""
        known, keep = ColumnTypes.decode(before), encodable(self._reading.wanted.keep)
        if not keep or (known is not None and known.keep == keep):
            return before
        self._check_files(begun=begun)
        if len(self._files) == 1:
            if self._number < 0:
                with contextlib.nullcontext() if begun else _never_started():
                    self._open(0)
            self._kinds = [self._rows.kinds()]
        # Files may be added, and lines of JSON differ.
        more = bool(self._files[0].name) or any(file.form == "jsonl" for file in self._files)
        found = ColumnTypes(settled(joined(encodable(self._kinds))), more, keep)
        found = known.extended(found) if known is not None else found
        check_kept(found.kinds, self._shown)
        return found.encode()

    def check(self, *, begun: bool) -> None:
        """See ``ChecksFiles``."""
        try:
            self._check(begun=begun)
        except TooManyColumns as error:
            if not begun:
                raise
            raise ConfigError(
                f"{error}; this job was begun by a version without that limit: finish it with that "
                "version, or begin anew with fewer columns and another -o, or --restart"
            ) from error

    def _check(self, *, begun: bool) -> None:
        self._check_files(begun=begun)
        if len(self._files) == 1:
            file = self._files[0]
            with contextlib.suppress(SourceError) if begun else _never_started():
                if begun:
                    self._open(0)
                else:
                    check_file(file, self._name_of(file), self._reading)

    def recall(self, batch: Recall) -> Page:
        """See ``Lister``. Reads the rows of the batch again."""
        self._check_files(begun=True)
        cursor, end = self._range(batch.recall_data)
        chunk, found = self._again(cursor, end)
        behind = cursor.skip + batch.count
        items = found[cursor.skip : behind]
        if len(items) != batch.count:
            raise SourceError(f"{self._shown}: batch {batch.seq} is not what was read; {REMEDY}")
        self._recalled = (cursor.file, _Read(chunk, found)) if len(found) > batch.count else None
        if chunk.end == end or behind < len(found):
            names = decode_names(batch.names)
            named = [
                item if item.fault else msgspec.structs.replace(item, name=name)
                for item, name in zip(items, names, strict=True)
            ]
            return Page(named, b"", batch.recall_data)
        self._grown = self._cursor(end)
        return Page(items, self._cursor(chunk.end), self._recall_data(chunk, cursor.skip))

    def _again(self, cursor: Cursor, end: bytes) -> _Read:
        """Return the rows from the place of ``cursor`` to ``end`` as they were read before."""
        if self._recalled is not None:
            number, read = self._recalled
            if (number, read.chunk.start, read.chunk.end) == (cursor.file, cursor.place, end):
                return read
        self._seek(cursor)
        with self._same_form():
            if self._rows.is_behind(cursor.place) and self._files[self._number].path != "-":
                self._open(self._number)
            chunk = self._rows.again(cursor.place, end)
        return _Read(chunk, self._items(chunk)[0])

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """See ``Lister``."""
        begun = bool(cursor)
        self._check_files(begun=begun)
        read, first = None, 0
        if not begun:
            if self._number != 0:
                with _never_started():
                    self._open(0)
        elif cursor != self._grown:
            read, first = self._go_to(self._decode(cursor))
        while True:
            most = size()
            with contextlib.nullcontext() if begun else _never_started():
                chunk, items = read or self._read(most)
            read = None
            begun = begun or bool(items)
            if chunk.taken:
                yield from self._parts(chunk, items, first, most, size)
                first = 0
            if not chunk.taken or (chunk.last and self._number + 1 == len(self._files)):
                if self._number + 1 == len(self._files):
                    return
                with contextlib.nullcontext() if begun else _never_started():
                    self._open(self._number + 1)

    def _go_to(self, begin: Cursor) -> tuple[_Read | None, int]:
        """Go to ``begin``; return the rows that were read for that, if any, and how many precede it."""
        if begin.skip and self._recalled is not None:
            number, read = self._recalled
            if (number, read.chunk.start) == (begin.file, begin.place):
                return read, begin.skip
        self._seek(begin)
        with self._same_form():
            self._rows.advance(begin.place)
        skip = begin.skip
        while skip:
            chunk = self._rows.read(skip)
            if not chunk.taken:
                raise SourceError(f"{self._shown}: {skip} rows are not there any more; {REMEDY}")
            count = len(chunk.table.numbers)
            if count > skip:
                return _Read(chunk, self._items(chunk)[0]), skip
            skip -= count
        return None, 0

    def _read(self, most: int) -> _Read:
        """Return the next rows, at most so many; not fewer, where pages are to be full."""
        chunks: list[Chunk] = []
        items: list[Item] = []
        taken = exact = weighed = 0  # bytes at most; bytes of the first ``weighed`` items
        pause = Pauses()
        while not chunks or (self._full and len(items) < most and taken < MOST_OF_SHARD):
            pause()
            chunk = self._rows.read(most - len(items))
            chunks.append(chunk)
            if not chunk.taken:
                break
            found, bound = self._items(chunk)
            items += found
            taken += bound
            if taken >= MOST_OF_SHARD and self._full:
                # Seldom so much that it has to be known.
                exact += sum(map(weight, items[weighed:]))
                taken, weighed = exact, len(items)
            if chunk.last:
                break
        return _Read(joined_chunks(chunks), items)

    def _parts(
        self, chunk: Chunk, items: list[Item], first: int, most: int, size: Callable[[], int]
    ) -> Iterator[Page]:
        """Yield ``items`` from ``first`` on in pages that can be batches, mostly all in one."""
        note = chunk.table.note
        count = len(items) - first
        whole = self._bare or (count <= most and self._bound(chunk, items) <= MOST_OF_BATCH)
        weights = [] if whole else list(map(weight, items))
        while True:
            end = len(items) if whole else cut(weights, first, most)
            cursor = self._cursor(chunk.end) if end == len(items) else self._cursor(chunk.start, end)
            yield Page(
                items[first:end], cursor, self._recall_data(chunk, first), self._position(), note=note
            )
            first, note = end, ""
            if end == len(items):
                return
            most = size()

    def _items(self, chunk: Chunk) -> tuple[list[Item], int]:
        """Return the items of ``chunk``, and a number of bytes that their ``weight`` does not exceed."""
        if not chunk.table.numbers:
            return [], 0
        items = self._maker.items(chunk.table, self._where)
        bound = self._bound(chunk, items)
        if bound > MOST_OF_ITEM:
            for index, item in enumerate(items):
                if (size := weight(item)) > MOST_OF_ITEM:
                    items[index] = self._too_large(chunk.table.numbers[index], size)
        return items, bound

    def _bound(self, chunk: Chunk, items: list[Item]) -> int:
        columns = self._rows.columns
        kept = sum(len(item.columns) for item in items) if columns.keep != () else 0
        return _TIMES * chunk.size + _OVERHEAD * len(items) + kept

    def _too_large(self, number: int, size: int) -> Item:
        name = self._where(number)
        why = f"has {size >> 20} MiB with its columns to keep, and a row may have {MOST_OF_ITEM >> 20} MiB"
        return Item(name, fault="bad-row", detail=f"{name} {why}")

    def _check_files(self, *, begun: bool) -> None:
        """Check every file, once: what is wrong with one of them is told before anything is fetched.

        ``begun``: the job has items already. Then a file that cannot be read is told where it is read.
        """
        if self._is_checked:
            return
        self._is_checked = True
        for file in self._files:
            # A single one is checked where it is opened, but not what stands beside it.
            if file.path != "-" and (len(self._files) > 1 or file.form == "bagit"):
                with contextlib.suppress(SourceError) if begun else _never_started():
                    self._kinds.append(check_file(file, self._name_of(file), self._reading))
                give_way()

    def _position(self) -> float:
        if len(self._files) == 1:
            return self._rows.fraction
        return (self._number + max(self._rows.fraction, 0.0)) / len(self._files)

    # cursors

    def _cursor(self, place: bytes, skip: int = 0) -> bytes:
        return place if self._bare else _encode(self._at(place, skip))

    def _at(self, place: bytes, skip: int = 0) -> Cursor:
        number = self._number
        name = os.fsencode(self._files[number].name)
        return Cursor(self._options, number, name, self._prints.before(number), place, skip)

    def _recall_data(self, chunk: Chunk, skip: int) -> bytes:
        if self._bare:
            return _encode((msgspec.Raw(chunk.start), msgspec.Raw(chunk.end)))
        return _encode((self._at(chunk.start, skip), chunk.end))

    def _range(self, recall_data: bytes) -> tuple[Cursor, bytes]:
        try:
            if not self._bare:
                return msgspec.msgpack.decode(recall_data, type=tuple[Cursor, bytes])
            start, end = msgspec.msgpack.decode(recall_data, type=tuple[msgspec.Raw, msgspec.Raw])
        except UNDECODABLE:
            raise self._other_form() from None
        return Cursor(self._options, 0, b"", 0, bytes(start)), bytes(end)

    def _decode(self, cursor: bytes) -> Cursor:
        if self._bare:
            return Cursor(self._options, 0, b"", 0, cursor)
        try:
            return msgspec.msgpack.decode(cursor, type=Cursor)
        except UNDECODABLE:
            raise self._other_form() from None

    def _seek(self, cursor: Cursor) -> None:
        """Open the file of ``cursor``. Raises SourceError if the list is not what it was."""
        if cursor.options != self._options:
            raise SourceError(
                f"{self._shown}: this job was begun with other options for format or columns of the "
                "list; give the same, or another -o, or --relist to read the list from its start (not with "
                "shards), or --restart"
            )
        files, name = self._files, shown(cursor.name.decode("utf-8", "surrogateescape"))
        if cursor.file >= len(files) or os.fsencode(files[cursor.file].name) != cursor.name:
            now = shown(files[cursor.file].name) if cursor.file < len(files) else "not there"
            raise SourceError(
                f"{self._shown}: this job has read up to file {cursor.file + 1}, {name}, and now that is "
                f"{now}: a file is new or missing before it; {REMEDY}"
            )
        if cursor.before != self._prints.before(cursor.file):
            raise SourceError(
                f"{self._shown}: one of the {cursor.file} files before {name} has changed since "
                f"this job read it; {REMEDY}"
            )
        if cursor.file != self._number:
            self._open(cursor.file)

    @contextlib.contextmanager
    def _same_form(self) -> Iterator[None]:
        """Raise SourceError for a position of another format, which its reader cannot understand."""
        try:
            yield
        except UNDECODABLE:
            raise self._other_form() from None

    def _other_form(self) -> SourceError:
        return SourceError(f"{self._shown}: this job was begun with a list of another format; {REMEDY}")
