"""Write rows of a manifest as JSON lines, CSV, Parquet, or the sums that ``sha256sum -c`` reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any, BinaryIO, Final

import msgspec

from downloader.config.contradictions import manifest_format
from downloader.errors import DestinationError
from downloader.sinks.stored import place

__all__ = ["Row", "Rows", "writer_of"]

_ROW_GROUP: Final = 50_000
_MOST_COLUMNS: Final = 1000


class Row(msgspec.Struct, frozen=True, gc=False):
    """A stored file; None is what is not known, or not there. ``columns``: what a list says of it.

    ``node``: the node that stored it, in a job over many machines only.
    """

    name: str
    url: str | None
    final_url: str | None
    status: int | None
    size: int
    hash: str | None
    etag: str | None
    last_modified: str | None
    content_type: str | None
    fetched_at: datetime | None
    shard: str | None
    key: str | None
    columns: dict[str, Any]
    node: str | msgspec.UnsetType = msgspec.UNSET


Rows = Iterable[list[Row]]
"""The rows of a manifest, in lists of a few. They may be iterated several times."""

_OWN: Final = tuple(name for name in Row.__struct_fields__ if name not in ("columns", "node"))


def writer_of(path: str, layout: str, rows: Rows, *, nodes: bool = False) -> Callable[[BinaryIO], None]:
    """Return a function that writes ``rows`` to a file, in the format of the manifest ``path``.

    ``nodes``: with the nodes of the rows. The function raises DestinationError.
    """
    form = manifest_format(path)
    own = (*_OWN, "node") if nodes else _OWN
    if form == "csv":
        return lambda file: _write_csv(file, rows, own, _kept(path, rows))
    if form == "parquet":
        return lambda file: _write_parquet(file, rows, own, _kept(path, rows))
    lines = _json_lines(rows) if form == "jsonl" else _sums(rows, layout)
    return lambda file: file.writelines(lines)


def _json_lines(rows: Rows) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    return map(encoder.encode_lines, rows)


def _sums(rows: Rows, layout: str) -> Iterator[bytes]:
    """Yield the lines of coreutils, which escape names that would break a line."""
    for row in chain.from_iterable(rows):
        if row.hash is None:
            continue
        name = place(row.name, layout).encode("utf-8", "surrogateescape")
        escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        mark = b"\\" if escaped != name else b""
        yield mark + row.hash.partition(":")[2].encode() + b"  " + escaped + b"\n"


def _kept(path: str, rows: Rows) -> dict[str, set[type]]:
    """Return the kept columns of all ``rows``, each with the types of its values."""
    found: dict[str, set[type]] = {}
    for row in chain.from_iterable(rows):
        for name, value in row.columns.items():
            types = found.setdefault(name, set())
            if value is not None:
                types.add(_type_of(value))
        if len(found) > _MOST_COLUMNS:
            raise DestinationError(
                f"{path}: the list has more than {_MOST_COLUMNS:,} columns; name a manifest in .jsonl"
            )
    return found


class _Large(int):
    """An integer that a double does not have exactly."""


def _type_of(value: Any) -> type:
    """Return the type of ``value``; of an integer that int64 does not have, str."""
    if type(value) is int and abs(value) > 1 << 53:
        return _Large if -(1 << 63) <= value < 1 << 63 else str
    return type(value)


def _named(kept: Iterable[str], own: tuple[str, ...]) -> dict[str, str]:
    """Return the names of ``kept`` columns in a table, where our ``own`` come first; no two are the same."""
    kept = list(kept)
    ours = {*own, "columns"}
    taken = {*ours, *kept}
    found: dict[str, str] = {}
    for name in kept:
        free = name
        while free in ours or (free != name and free in taken):
            free = f"columns.{free}"
        taken.add(free)
        found[name] = free
    return found


def _write_csv(file: BinaryIO, rows: Rows, names: tuple[str, ...], kept: dict[str, set[type]]) -> None:
    text = io.StringIO(newline="")
    plain = csv.writer(text, lineterminator="\n")
    # The other one leaves a CR unquoted, which to most readers ends a line.
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)

    def write(fields: list[str]) -> None:
        (quoted if "\r" in "".join(fields) else plain).writerow(fields)

    write([*names, *_named(kept, names).values()])
    for batch in chain([[]], rows):
        for row in batch:
            own = [_as_text(getattr(row, name)) for name in names]
            write(own + [_as_text(row.columns.get(name)) for name in kept])
        file.write(text.getvalue().encode("utf-8", "replace"))
        text.seek(0)
        text.truncate()


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode().strip('"')


def _write_parquet(file: BinaryIO, rows: Rows, names: tuple[str, ...], kept: dict[str, set[type]]) -> None:
    import pyarrow
    from pyarrow import parquet

    own: dict[str, Any] = dict.fromkeys(names, pyarrow.string())
    own |= {
        "status": pyarrow.int32(),
        "size": pyarrow.int64(),
        "fetched_at": pyarrow.timestamp("ms", "UTC"),
    }
    types = {
        frozenset({bool}): pyarrow.bool_(),
        **dict.fromkeys([frozenset({int}), frozenset({_Large}), frozenset({int, _Large})], pyarrow.int64()),
        **{frozenset({float}): pyarrow.float64(), frozenset({int, float}): pyarrow.float64()},
    }
    kinds = {name: types.get(frozenset(seen), pyarrow.string()) for name, seen in kept.items()}
    texts = {name for name, kind in kinds.items() if kind == pyarrow.string()}
    fields = [*own.items(), *((_named(kept, names)[name], kind) for name, kind in kinds.items())]
    schema = pyarrow.schema([pyarrow.field(name, kind) for name, kind in fields])
    source = chain.from_iterable(rows)
    try:
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            while batch := list(islice(source, _ROW_GROUP)):
                arrays = [
                    pyarrow.array([getattr(row, name) for row in batch], kind) for name, kind in own.items()
                ]
                for name, kind in kinds.items():
                    values = [row.columns.get(name) for row in batch]
                    if name in texts:
                        values = [value if value is None else _as_text(value) for value in values]
                    arrays.append(pyarrow.array(values, kind))
                writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
    except (pyarrow.ArrowException, OverflowError) as error:
        raise DestinationError(f"the manifest cannot be written as Parquet: {error}") from error
