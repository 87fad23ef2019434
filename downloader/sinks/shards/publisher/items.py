"""Write a table with a row for every item of a shard, in the order of their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final

from downloader.core.column_types import ColumnTypes, joined, kind_of, settled
from downloader.errors import UNDECODABLE
from downloader.sinks.shards.jobs import FailedItem
from downloader.sinks.shards.publisher.columns import (
    FIXED,
    INFORMATION,
    Columns,
    Reader,
    fitted,
    table_kinds,
    with_failed,
)
from downloader.sinks.shards.publisher.part import Part, PartError, Sample
from downloader.sinks.shards.publisher.tables import open_table
from downloader.sinks.shards.samples import encode_kept, kinds_of

__all__ = ["CHUNK", "Items"]

CHUNK: Final = 20_000
"""Rows that are in memory at a time; a row group of the table."""


class Items:
    """The items of a shard. Raises PartError if the metadata of a sample cannot be read.

    ``samples`` and ``failed`` are in the order of their keys; ``keys`` are those of both, in order.
    ``types``: of the kept columns, None if the job does not know them.
    """

    def __init__(
        self,
        part: Part | None,
        samples: Sequence[Sample],
        failed: Sequence[FailedItem],
        keys: Sequence[str],
        types: ColumnTypes | None = None,
    ) -> None:
        self._part = part
        self._samples = samples
        self._failed = failed
        self._keys = keys
        self._types = types
        self._kinds_in_json = kinds_of(types)
        self._reader = Reader(self._kinds_in_json or ())
        self._last: tuple[int, int, Columns] = (-1, -1, {})
        self._kinds: dict[str, str] | None = None

    def kinds(self) -> dict[str, str]:
        """Return the type of each kept column, see ``columns.table_kinds``.

        Where the job does not know them, they are those of this shard: all its rows are read for that.
        """
        if self._kinds is None:
            types = self._types if self._types is not None else self._seen()
            self._kinds = table_kinds(types)
        return self._kinds

    def _seen(self) -> ColumnTypes:
        found: list[dict[str, str]] = []

        def see(columns: Columns) -> None:
            kept = {name: kind_of(values) for name, values in columns.items() if name not in FIXED}
            found.append(kept)

        for start in range(0, len(self._samples), CHUNK):
            see(self.metadata(start, min(start + CHUNK, len(self._samples))))
        for start in range(0, len(self._failed), CHUNK):
            see(self._kept(self._failed[start : start + CHUNK]))
        return ColumnTypes(settled(joined(found)))

    def fitted(self, columns: Columns, rows: int) -> Columns:
        """Return ``columns`` with the kept columns of a table, see ``columns.fitted``."""
        return fitted(columns, self.kinds(), rows, stated=self._types is not None)

    def metadata(self, start: int, stop: int) -> Columns:
        """Return the metadata of these samples, in columns."""
        if self._last[:2] != (start, stop):
            texts = self._part.metadata(self._samples[start:stop]) if self._part and stop > start else []
            try:
                found = self._reader.columns(texts)
            except UNDECODABLE as error:
                raise PartError(f"metadata that cannot be read: {error}") from error
            self._last = (start, stop, found)
        return self._last[2]

    def _kept(self, failed: Sequence[FailedItem]) -> Columns:
        """Return the kept columns of failed items, among columns of METADATA without values."""
        return self._reader.columns([encode_kept(item.columns, self._kinds_in_json) for item in failed])

    def write(self, file: BinaryIO, form: str, files: Mapping[str, str] | str, members: bool) -> None:
        """Write the table.

        ``files``: the file that all samples are in, or that of each; ``members``: it is a tar.
        """
        kinds = self.kinds()
        with open_table(form, file, {**FIXED, **kinds}) as table:
            stored = failed = 0
            for start in range(0, len(self._keys), CHUNK):
                keys = self._keys[start : start + CHUNK]
                at = stored, failed
                # Of two sorted sequences, together in order: those up to the last key.
                chosen = set(keys) if self._failed else frozenset()
                while failed < len(self._failed) and self._failed[failed].key in chosen:
                    failed += 1
                stored += len(keys) - (failed - at[1])
                columns = dict(self.metadata(at[0], stored))
                samples = self._samples[at[0] : stored]
                if isinstance(files, str):
                    columns["file"] = [files] * len(samples)
                else:
                    columns["file"] = [files[sample.key] for sample in samples]
                columns["member"] = _names(samples) if members else [None] * len(samples)
                for name in INFORMATION:
                    columns.setdefault(name, [None] * len(samples))
                lost = self._failed[at[1] : failed]
                if lost:
                    columns = with_failed(columns, keys, lost, self._kept(lost))
                if form == "parquet":
                    columns = self.fitted(columns, len(keys))
                table.write(columns)


def _names(samples: Sequence[Sample]) -> list[str]:
    """Return the names of the first members; decoded at once, which takes half as long."""
    return b"\0".join([sample.member for sample in samples]).decode().split("\0") if samples else []
