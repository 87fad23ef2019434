"""Define what the readers of all formats return: rows by column, between two positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from downloader.sources.lines import Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import Fields

__all__ = ["Chunk", "Numbered", "Parser", "Rows", "Table", "joined"]

Numbered = list[tuple[int, bytes]]
"""Lines with their numbers."""


class Table(NamedTuple):
    """Rows by column: for each row its ``number`` in the list, and a value in each of ``columns``.

    A value is None where a row has none. ``faults``: why the rows at these indices cannot be read.
    ``extra``: for each row, the columns to keep with it where they differ from row to row. ``note`` is for
    the user.
    """

    numbers: Sequence[int]
    columns: Mapping[str, Sequence[Any]]
    faults: Mapping[int, str] = MappingProxyType({})
    extra: Sequence[dict[str, Any]] | None = None
    note: str = ""


class Chunk(NamedTuple):
    """A table, with the positions before and after it; see ``Rows``.

    ``taken``: something was read, although the table may have no rows. ``last``: what follows, if anything,
    may be the rest of the last row, and is not to be read in this run. ``size``: bytes of the rows in the
    file.
    """

    table: Table
    start: bytes
    end: bytes
    taken: bool = True
    last: bool = False
    size: int = 0


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return one chunk for ``chunks``, which follow each other and of which there is at least one."""
    if len(chunks) == 1:
        return chunks[0]
    tables = [chunk.table for chunk in chunks if chunk.table.numbers]
    numbers: list[int] = []
    faults: dict[int, str] = {}
    for table in tables:
        faults.update({len(numbers) + index: fault for index, fault in table.faults.items()})
        numbers.extend(table.numbers)
    names = dict.fromkeys(name for table in tables for name in table.columns)
    columns = {
        name: [v for table in tables for v in table.columns.get(name) or [None] * len(table.numbers)]
        for name in names
    }
    extra = None
    if any(table.extra is not None for table in tables):
        extra = [each for table in tables for each in table.extra or [{}] * len(table.numbers)]
    note = next((chunk.table.note for chunk in chunks if chunk.table.note), "")
    return Chunk(
        Table(numbers, columns, faults, extra, note),
        chunks[0].start,
        chunks[-1].end,
        any(chunk.taken for chunk in chunks),
        chunks[-1].last,
        sum(chunk.size for chunk in chunks),
    )


class Parser(Protocol):
    """A format of text: makes tables of lines.

    ``unit`` is what a row's number counts; ``longest``: bytes of a line; ``comment``, ``cr_ends``,
    ``row``: see ``Lines``.
    ``columns`` are those of a format that always has the same, None for one with a header or with keys;
    ``fixed``: all rows have the same columns. ``fields``: what columns that are structs have in them, as
    far as ``begin`` has seen it. ``cause``: what to say where a column is missing that the list must have,
    as far as ``begin`` has seen why.
    """

    unit: str
    longest: int
    comment: bytes
    row: re.Pattern[bytes] | None
    cr_ends: bool
    columns: Columns | None
    fixed: bool
    fields: Fields
    cause: str

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """Return the names of the columns, from the first lines of the list. Raises ConfigError."""

    def select(self, columns: Columns) -> None:
        """Read these columns from now on."""

    def kinds(self, sample: Callable[[], Sequence[bytes]], columns: Columns) -> dict[str, str]:
        """Return the kinds of the columns to keep; ``sample`` returns the first lines of the list."""

    def skip_header(self, lines: Lines) -> None:
        """Read the header, if there is one."""

    def table(self, lines: Numbered, following: Callable[[], bytes], more: Callable[[], Numbered]) -> Table:
        """Return the rows of ``lines``.

        ``following`` returns the first byte of the next line, ``more`` the line itself; for rows of several
        lines. There may be more rows than lines, where ``more`` was called. Raises SourceError if something
        beside the list is not what it was.
        """

    def close(self) -> None:
        """Close what it has opened beside the list."""


class Rows(Protocol):
    """The rows of one file. Positions are MessagePack, which only the reader understands.

    ``unit`` is what a row's number counts: "line" or "row". Methods raise SourceError if the file cannot be
    read, or is not what it was at a position; ConfigError where a column is missing.
    """

    unit: str
    columns: Columns

    def kinds(self) -> dict[str, str]:
        """Return the kinds of the columns to keep (``core.column_types``), as far as they are known.

        Of JSON they are those of the first values.
        """

    @property
    def fraction(self) -> float:
        """How much of the file is read, 0 to 1; -1 if unknown."""

    def advance(self, to: bytes) -> None:
        """Skip to ``to``; b"": the first row."""

    def read(self, most: int) -> Chunk:
        """Return at most ``most`` rows."""

    def is_behind(self, position: bytes) -> bool:
        """Return whether ``position`` precedes what was read, so that the file must be opened again."""

    def again(self, start: bytes, end: bytes) -> Chunk:
        """Return the rows between two positions, as they were read before.

        If the last of them was a line without its end, and has it now, the chunk ends elsewhere.
        """

    def close(self) -> None:
        """Close the file."""
