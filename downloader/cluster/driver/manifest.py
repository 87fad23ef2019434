"""Write --manifest of a job over many machines, from the rows that its slices have left in the plan.

The rows are in the order of the source: those of a slice, with those of its items that failed and were
tried again in other slices. Of a slice that was done without --manifest they have what the plan says of its
items, and their sizes. Memory does not grow with the number of files: the rows of what was
tried again are in a temporary table.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import msgspec

from downloader.cluster.driver.retry import failed_items
from downloader.cluster.plan.plan import PlanDirectory, Slice, SliceRecord
from downloader.cluster.plan.stored import read_stored
from downloader.config.config import Config
from downloader.core.redact import redact_url
from downloader.core.units import show_count
from downloader.errors import DestinationError, FetchError
from downloader.messages import Item
from downloader.reporting.manifest import remarks
from downloader.reporting.manifest_formats import Row, writer_of
from downloader.reporting.manifest_rows import Fields, RowsMade, read_rows
from downloader.reporting.published_file import publish
from downloader.sources.registry import source_kind

__all__ = ["write_cluster_manifest"]

_TOGETHER: Final = 1000  # rows
_decode = msgspec.msgpack.Decoder(Fields).decode
_Placed = tuple[int, Row]  # the number of the item in its slice


def write_cluster_manifest(
    config: Config, directory: PlanDirectory, slices: list[Slice], log: Callable[[str], object]
) -> None:
    """Write the manifest of ``config`` from the ``slices`` that are done.

    ``log`` gets lines about what is not known. Raises DestinationError, JournalError, SourceError.
    """
    with contextlib.ExitStack() as stack:
        rows = _Rows(config, directory, slices, stack)
        types = next((slice_.types for slice_ in slices if slice_.types), "")
        write = writer_of(config.manifest, config.layout, rows, types, nodes=True)
        mark = f"manifest-{zlib.crc32(os.fsencode(config.journal_root)):08x}"
        publish(config.manifest, write, config.output, mark)
        for line in rows.remarks():
            log(line)


class _Rows:
    """The rows of a job. They can be iterated several times."""

    def __init__(
        self, config: Config, directory: PlanDirectory, slices: list[Slice], stack: contextlib.ExitStack
    ) -> None:
        self._config = config
        self._directory = directory
        self._source = [slice_ for slice_ in slices if not slice_.retries and slice_.count]
        self._made = RowsMade()
        self._missing = 0
        self._again = stack.enter_context(contextlib.closing(_RetriedRows()))
        for slice_ in slices:
            if slice_.retries and (done := directory.done(slice_.name)) is not None:
                self._again.add(self._origins(slice_), self._rows_of(slice_, done))
        self._made_again, self._missing_again = self._made, self._missing

    def _origins(self, slice_: Slice) -> list[tuple[str, int]]:
        """Return, for each item of a slice of what failed, the slice of the source and its number there."""
        items = chain.from_iterable(self._directory.items(slice_))
        return [(item.earlier.slice, item.earlier.number) for item in items if item.earlier]

    def __iter__(self) -> Iterator[list[Row]]:
        """Yield the rows of all slices, some at a time."""
        self._made, self._missing = self._made_again, self._missing_again
        for slice_ in self._source:
            done = self._directory.done(slice_.name)
            if done is None:
                continue
            again = self._again.of(slice_.name)
            rows = self._rows_of(slice_, done)
            together: list[Row] = []
            for _, row in heapq.merge(rows, again, key=itemgetter(0)):
                together.append(row)
                if len(together) == _TOGETHER:
                    yield together
                    together = []
            yield together

    def _rows_of(self, slice_: Slice, done: SliceRecord) -> Iterator[_Placed]:
        """Yield the rows of the items that a slice has stored."""
        self._made += done.rows
        if not done.manifest:
            yield from self._without_rows(slice_, done)
            return
        # Of items that were stored and found damaged, there is a row where they are stored again.
        failed = failed_items(self._directory, slice_, done).items
        name = f"manifest/{done.manifest}"
        with self._directory.files.open(name) as file:
            for numbered in read_rows(file, f"{self._directory.root}/{name}"):
                for number, fields in numbered:
                    if number not in failed:
                        yield number, _row(fields, done.node)

    def _without_rows(self, slice_: Slice, done: SliceRecord) -> Iterator[_Placed]:
        failed = failed_items(self._directory, slice_, done).items
        builder = source_kind(self._config).request_builder(self._config)
        items = enumerate(chain.from_iterable(self._directory.items(slice_)))
        for number, item, size in self._sizes(slice_, done, items):
            if number in failed or item.fault:
                continue
            if size is None:
                self._missing += 1
                continue
            self._made += RowsMade(1, 1, int(bool(self._config.hash_algorithm)))
            try:
                url = redact_url(builder.request(item).url)
            except FetchError:
                url = ""
            columns = msgspec.msgpack.decode(item.columns) if item.columns else {}
            fields = (item.name, url or None, None, None, size, *[None] * 7, columns)
            yield number, _row(fields, done.node)

    def _sizes(
        self, slice_: Slice, done: SliceRecord, items: Iterator[tuple[int, Item]]
    ) -> Iterator[tuple[int, Item, int | None]]:
        """Yield the ``items`` that are stored, with their sizes; None is one that is not known."""
        if not done.stored:
            yield from ((number, item, item.size) for number, item in items)
            return
        name = f"stored/{done.stored}"
        with self._directory.files.open(name) as file:
            for number, state in read_stored(file, f"{self._directory.root}/{name}", slice_.count):
                item = next(item for at, item in items if at == number)
                yield number, item, state.size

    def remarks(self) -> Iterator[str]:
        """Yield what is to be known of the rows that were written last."""
        yield from remarks(self._config, self._made)
        if self._missing:
            yield (
                f"{self._config.manifest}: {show_count(self._missing)} files have no row: they were stored "
                "by a run without --manifest, and their sizes are not known"
            )


def _row(fields: Any, node: str) -> Row:
    return Row(*(*fields, node))


class _RetriedRows:
    """The rows of items that were tried again, in a temporary table. Raises DestinationError."""

    def __init__(self) -> None:
        self._table = sqlite3.connect("", isolation_level=None)
        self._table.execute(
            "CREATE TABLE row (slice TEXT, number INTEGER, node TEXT, fields BLOB, "
            "PRIMARY KEY (slice, number)) WITHOUT ROWID"
        )

    def add(self, origins: list[tuple[str, int]], rows: Iterable[_Placed]) -> None:
        """Add ``rows``, whose numbers are positions in ``origins``."""
        encode = msgspec.msgpack.Encoder().encode
        with self._translated():
            self._table.execute("BEGIN")
            self._table.executemany(
                "INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?)",
                (
                    (*origins[number], row.node, encode(msgspec.structs.astuple(row)[:-1]))
                    for number, row in rows
                ),
            )
            self._table.execute("COMMIT")

    def of(self, name: str) -> Iterator[_Placed]:
        """Yield the rows of the items of a slice of the source."""
        with self._translated():
            query = "SELECT number, node, fields FROM row WHERE slice = ? ORDER BY number"
            for number, node, fields in self._table.execute(query, (name,)):
                yield number, _row(_decode(fields), node)

    def close(self) -> None:
        """Remove the table."""
        self._table.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DestinationError(
                f"a temporary table of the manifest: {error}; free some space"
            ) from error
