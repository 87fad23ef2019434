"""Read a list of URLs: one file or several, of any of the formats in ``lists``, or standard input.

A list is read as a stream, so memory does not grow with its length. URLs and header fields can carry
secrets, so the journal stores positions in the list, and an earlier batch is recreated by reading the list
again.

The cursor of a single text file of URLs is a ``Place`` (``lines``). That of every other list is a
``Cursor``, which also records the file, those before it, and the options that decide what a row means.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import msgspec

from downloader.core.name_list import decode_names
from downloader.core.naming import shown
from downloader.errors import SourceError
from downloader.messages import Item, Page, Recall
from downloader.sources.lines import REMEDY
from downloader.sources.lists.columns import Wanted
from downloader.sources.lists.files import ListFile
from downloader.sources.lists.fingerprints import Fingerprints
from downloader.sources.lists.items import ItemMaker
from downloader.sources.lists.open_rows import open_rows
from downloader.sources.lists.rows import Chunk, Rows, joined

__all__ = ["Cursor", "UrlLister"]

_encode = msgspec.msgpack.encode


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """A position in a list of several files, or in one with columns.

    ``options``: CRC-32 of the options that decide what a row means. ``file``: number of the file, ``name``
    its name below the directory or pattern, ``before``: CRC-32 of names and contents of the files before
    it. ``place``: the position in it, as its ``Rows`` give it; b"" is its beginning.
    """

    options: int
    file: int
    name: bytes
    before: int
    place: bytes


class UrlLister:
    """The lister of ``files``; see ``Lister``. Raises SourceError, and ConfigError if a column is missing.

    ``shown``: the name of the list in messages. ``options``: see ``Cursor``. ``mirror``: the layout is;
    ``colon``: see ``core.naming.url_path``.
    ``full``: the store has shards, so a page has as many items as were asked for, as long as its file has
    them.
    ``checksums``: they are verified.
    """

    def __init__(
        self,
        files: Sequence[ListFile],
        shown: str,
        wanted: Wanted,
        name_key: bytes,
        *,
        options: int,
        mirror: bool,
        colon: str,
        full: bool = False,
        checksums: bool = True,
    ) -> None:
        self._full = full
        self._files = files
        self._shown = shown
        self._wanted = wanted
        self._name_key = name_key
        self._options = options
        self._mirror = mirror
        self._colon = colon
        self._checksums = checksums
        # Journals of earlier versions have bare places, which say all there is to say of such a list.
        self._bare = len(files) == 1 and not files[0].name and files[0].form == "txt"
        self._prints = Fingerprints(files)
        self._grown = b""  # the cursor behind the former end of the list, if its last line has grown
        self._number = -1  # of the open file; opened only when it is read, since a pipe may be silent
        self._rows: Rows
        self._maker: ItemMaker

    def _open(self, number: int) -> None:
        if self._number >= 0:
            self._rows.close()
        file = self._files[number]
        self._rows = open_rows(file, self._name_of(file), self._wanted)
        self._maker = ItemMaker(
            self._rows.columns,
            self._name_key,
            mirror=self._mirror,
            colon=self._colon,
            checksums=self._checksums,
            cut=self._full,
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

    def recall(self, batch: Recall) -> Page:
        """See ``Lister``. Reads the rows of the batch again."""
        cursor, end = self._range(batch.origin)
        self._seek(cursor)
        if self._rows.is_behind(cursor.place) and self._files[self._number].path != "-":
            self._open(self._number)
        chunk = self._rows.again(cursor.place, end)
        items = self._items(chunk)
        if len(items) != batch.count:
            raise SourceError(f"{self._shown}: batch {batch.seq} is not what was read; {REMEDY}")
        if chunk.end == end:
            names = decode_names(batch.names)
            named = [
                item if item.fault else msgspec.structs.replace(item, name=name)
                for item, name in zip(items, names, strict=True)
            ]
            return Page(named, b"", batch.origin)
        self._grown = self._cursor(end)
        return Page(items, self._cursor(chunk.end), self._origin(chunk))

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """See ``Lister``."""
        if not cursor:
            if self._number != 0:
                self._open(0)
        elif cursor != self._grown:
            begin = self._decode(cursor)
            self._seek(begin)
            self._rows.advance(begin.place)
        while True:
            chunk = self._read(size())
            if chunk.taken:
                items = self._items(chunk)
                yield Page(
                    items,
                    self._cursor(chunk.end),
                    self._origin(chunk),
                    self._position(),
                    note=chunk.table.note,
                )
            if not chunk.taken or (chunk.last and self._number + 1 == len(self._files)):
                if self._number + 1 == len(self._files):
                    return
                self._open(self._number + 1)

    def _read(self, most: int) -> Chunk:
        """Return the next rows, at most so many; not fewer, where pages are to be full."""
        chunks = [self._rows.read(most)]
        taken = len(chunks[0].table.numbers)
        while self._full and taken < most and chunks[-1].taken and not chunks[-1].last:
            chunks.append(self._rows.read(most - taken))
            taken += len(chunks[-1].table.numbers)
        return joined(chunks)

    def _items(self, chunk: Chunk) -> list[Item]:
        return self._maker.items(chunk.table, self._where) if chunk.table.numbers else []

    def _position(self) -> float:
        if len(self._files) == 1:
            return self._rows.fraction
        return (self._number + max(self._rows.fraction, 0.0)) / len(self._files)

    # cursors

    def _cursor(self, place: bytes) -> bytes:
        return place if self._bare else _encode(self._at(place))

    def _at(self, place: bytes) -> Cursor:
        number = self._number
        name = os.fsencode(self._files[number].name)
        return Cursor(self._options, number, name, self._prints.before(number), place)

    def _origin(self, chunk: Chunk) -> bytes:
        if self._bare:
            return _encode((msgspec.Raw(chunk.start), msgspec.Raw(chunk.end)))
        return _encode((self._at(chunk.start), chunk.end))

    def _range(self, origin: bytes) -> tuple[Cursor, bytes]:
        try:
            if not self._bare:
                return msgspec.msgpack.decode(origin, type=tuple[Cursor, bytes])
            start, end = msgspec.msgpack.decode(origin, type=tuple[msgspec.Raw, msgspec.Raw])
        except msgspec.DecodeError:
            raise self._other_form() from None
        return Cursor(self._options, 0, b"", 0, bytes(start)), bytes(end)

    def _decode(self, cursor: bytes) -> Cursor:
        if self._bare:
            return Cursor(self._options, 0, b"", 0, cursor)
        try:
            return msgspec.msgpack.decode(cursor, type=Cursor)
        except msgspec.DecodeError:
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

    def _other_form(self) -> SourceError:
        return SourceError(f"{self._shown}: this job was begun with a list of another format; {REMEDY}")
