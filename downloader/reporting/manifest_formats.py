"""Write rows of a manifest as JSON lines, CSV, Parquet, or the sums that ``sha256sum -c`` reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any, BinaryIO, Final

import msgspec

from downloader.config.options import manifest_format
from downloader.core.column_types import EXACT_AS_FLOAT, LARGEST_INT, MOST_COLUMNS, ColumnTypes
from downloader.errors import DestinationError
from downloader.sinks.stored import place

__all__ = ["Row", "Rows", "writer_of"]

_ROW_GROUP: Final = 50_000
_PLAIN_NAME: Final = re.compile(r"[\w.-]+").fullmatch  # of a column, which needs no quotes in CSV


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


def writer_of(
    path: str, layout: str, rows: Rows, types: str = "", *, nodes: bool = False
) -> Callable[[BinaryIO], None]:
    """Return a function that writes ``rows`` to a file, in the format of the manifest ``path``.

    ``types``: of kept columns, as the job knows them (``core.column_types``). ``nodes``: with the nodes of
    the rows. The function raises DestinationError.
    """
    form = manifest_format(path)
    own = (*_OWN, "node") if nodes else _OWN
    known = ColumnTypes.decode(types) or ColumnTypes()
    if form == "csv":
        return lambda file: _write_csv(file, rows, own, _kept(path, rows, known))
    if form == "parquet":
        return lambda file: _write_parquet(file, rows, own, _kept(path, rows, known), known)
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


def _kept(path: str, rows: Rows, known: ColumnTypes) -> dict[str, set[type]]:
    """Return the kept columns of the job and of all ``rows``, each with the types of its values."""
    found: dict[str, set[type]] = {name: set() for name in known.kinds}
    for row in chain.from_iterable(rows):
        for name, value in row.columns.items():
            types = found.setdefault(name, set())
            if value is not None:
                types.add(_type_of(value))
        if len(found) > MOST_COLUMNS:
            raise DestinationError(
                f"{path}: the rows have more than {MOST_COLUMNS:,} different columns together, which only "
                "a manifest in .jsonl may have; nothing is lost: the same command with such a name writes "
                "it from what is recorded, and fetches nothing again"
            )
    return found


class _Large(int):
    """An integer that a double does not have exactly."""


class _Unsigned(int):
    """An integer that int64 does not have."""


def _type_of(value: Any) -> type:
    if type(value) is int and abs(value) > EXACT_AS_FLOAT:
        return _Large if value <= LARGEST_INT else _Unsigned
    return type(value)


_ARROW_TYPES: Final = {
    "bool": (frozenset({bool}), "bool_"),
    "int": (frozenset({int, _Large}), "int64"),
    "float": (frozenset({int, float}), "float64"),
    "uint": (frozenset({int, _Large, _Unsigned}), "uint64"),
}
"""The kinds of columns with the types of their values, the narrower before the wider ones."""


def _arrow_type(seen: set[type], known: str | None) -> str:
    """Return the name of the Arrow type of a column: the kind that is ``known``, if its values fit."""
    if known in _ARROW_TYPES and seen <= _ARROW_TYPES[known][0]:
        return _ARROW_TYPES[known][1]
    fitting = (name for kind, (types, name) in _ARROW_TYPES.items() if seen <= types and kind != "uint")
    return next(fitting, "string") if seen else "string"


def _named(kept: Iterable[str], own: tuple[str, ...]) -> dict[str, str]:
    """Return the names of ``kept`` columns in a table, where our ``own`` come first; all differ."""
    kept = list(kept)
    ours = {*own, "columns"}
    # Some readers, such as duckdb, take names for one that differ in case, or in blanks at their ends.
    taken = {_folded(name) for name in ours}
    reserved = taken | {_folded(name) for name in kept}
    found: dict[str, str] = {}
    for name in kept:
        free = name
        while _folded(free) in taken or (free != name and _folded(free) in reserved):
            free = f"columns.{free}"
        taken.add(_folded(free))
        found[name] = free
    return found


def _folded(name: str) -> str:
    return name.strip().casefold()


def _write_csv(file: BinaryIO, rows: Rows, names: tuple[str, ...], kept: dict[str, set[type]]) -> None:
    """Write RFC 4180, with LF, so that readers which guess the dialect guess right.

    Text is always in quotes: duckdb looks at the first rows only, and would take those of later ones for
    text; several readers end a line at a CR that is not in quotes. What is not known is not, so that it
    differs from an empty text, nor are numbers. (``csv.QUOTE_STRINGS`` is of Python 3.12.)
    """
    header = [*names, *_named(kept, names).values()]
    file.write(_csv_line(name if _PLAIN_NAME(name) else _quoted(name) for name in header))
    for batch in rows:
        lines = []
        for row in batch:
            values = [getattr(row, name) for name in names]
            lines.append(_csv_line(map(_csv_field, values + [row.columns.get(name) for name in kept])))
        file.writelines(lines)


def _csv_line(fields: Iterable[str]) -> bytes:
    return f"{','.join(fields)}\n".encode("utf-8", "replace")


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (bool, int, float, datetime)):
        return _as_text(value)
    return _quoted(_as_text(value))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode().strip('"')


def _write_parquet(
    file: BinaryIO, rows: Rows, names: tuple[str, ...], kept: dict[str, set[type]], known: ColumnTypes
) -> None:
    import pyarrow
    from pyarrow import parquet

    own: dict[str, Any] = dict.fromkeys(names, pyarrow.string())
    own |= {
        "status": pyarrow.int32(),
        "size": pyarrow.int64(),
        "fetched_at": pyarrow.timestamp("ms", "UTC"),
    }
    # Of a list that may change, values without a sign cannot be relied on.
    sure = {name: kind for name, kind in known.kinds.items() if kind != "uint" or not known.open}
    kinds = {name: getattr(pyarrow, _arrow_type(seen, sure.get(name)))() for name, seen in kept.items()}
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
