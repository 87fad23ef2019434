"""Turn the metadata of samples into columns, of which each kept one has the type that the job gives it.

Plain Python: pyarrow and JSON Lines get the same columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from downloader.core.column_types import OTHER, ColumnTypes, as_json, fits
from downloader.sinks.shards.jobs import METADATA, FailedItem
from downloader.sinks.shards.samples import kept_fields

__all__ = ["FIXED", "INFORMATION", "Columns", "Reader", "fitted", "table_kinds", "with_failed"]

Columns = dict[str, list[Any]]

FIXED: Final = {
    **dict.fromkeys(METADATA, "text"),
    "status": "int",
    "size": "int",
    "crc32": "int",
    "fetched_at": "float",
    "error": "text",
    "error_message": "text",
    "file": "text",
    "member": "text",
}
"""The columns of a row for an item, with their types: the metadata, and what became of the item."""

INFORMATION: Final = tuple(name for name in FIXED if name not in METADATA)

_RESERVED: Final = frozenset({*FIXED, "bytes"})
_TYPES: Final[dict[str, Any]] = {"text": str | None, "int": int | None, "float": float | None}
_decode_dict = msgspec.json.Decoder(dict[str, Any]).decode


class Reader:
    """A decoder of metadata, quick as long as all samples have the same fields.

    A kept column with the name of one of ours gets underscores behind its name. ``kept``: the columns that
    are known, which have their names before those that are found.
    """

    def __init__(self, kept: Iterable[str] = ()) -> None:
        self._kept = dict.fromkeys(kept)
        self._names: list[str] = []
        self._decode: Any = None
        self._fields: list[str] = []

    def columns(self, texts: Sequence[bytes]) -> Columns:
        """Return the columns of METADATA, and the kept ones in the order in which they are found.

        Raises ValueError if a text is no metadata of a sample.
        """
        if not texts:
            return {name: [] for name in METADATA}
        if self._decode is None:
            self._prepare(list(_decode_dict(texts[0])))
        try:
            rows = self._decode(b"[" + b",".join(texts) + b"]") if self._decode else None
        except msgspec.ValidationError:
            rows = None
        if rows is None:
            return self._columns_of_dicts([_decode_dict(text) for text in texts])
        fields = zip(self._names, self._fields, strict=True)
        return {name: list(map(attrgetter(field), rows)) for name, field in fields}

    def _free(self, found: Iterable[str]) -> dict[str, str]:
        """Return the names that the kept columns ``found`` have in a table."""
        self._kept |= dict.fromkeys(found)
        return dict(zip(self._kept, _free_names(list(self._kept)), strict=True))

    def _prepare(self, found: list[str]) -> None:
        kept = [name for name in found if name not in METADATA]
        free = self._free(kept)
        sources = [*METADATA, *kept]
        self._names = [*METADATA, *(free[name] for name in kept)]
        self._fields = [f"f{index}" for index in range(len(sources))]
        try:
            row = msgspec.defstruct(
                "Row",
                [
                    (field, _TYPES[FIXED[source]] if source in METADATA else Any)
                    for field, source in zip(self._fields, sources, strict=True)
                ],
                rename=dict(zip(self._fields, sources, strict=True)),
                forbid_unknown_fields=True,
                gc=False,
            )
        except ValueError:
            return  # a name has a quote, a backslash or a control character
        self._decode = msgspec.json.Decoder(list[row]).decode  # type: ignore[valid-type]

    def _columns_of_dicts(self, rows: list[dict[str, Any]]) -> Columns:
        kept = dict.fromkeys(name for row in rows for name in row if name not in METADATA)
        for name in METADATA:
            for row in rows:
                msgspec.convert(row.get(name), _TYPES[FIXED[name]])
        found: Columns = {name: [row.get(name) for row in rows] for name in METADATA}
        free = self._free(kept)
        return found | {free[name]: [row.get(name) for row in rows] for name in kept}


def _free_names(kept: Sequence[str]) -> list[str]:
    taken = {*_RESERVED, *kept}
    names = []
    for name in kept:
        free = name
        while free in _RESERVED or (free != name and free in taken):
            free += "_"
        taken.add(free)
        names.append(free)
    return names


def with_failed(
    stored: Columns, keys: Sequence[str], failed: Sequence[FailedItem], kept: Columns
) -> Columns:
    """Return ``stored`` with a row for each failed item, all rows in the order of ``keys``.

    ``kept``: the kept columns of the failed items, and columns of METADATA, which do not count.
    """
    row_of = {key: row for row, key in enumerate([*stored["key"], *(item.key for item in failed)])}
    order = [row_of[key] for key in keys]
    none, empty = [None] * len(stored["key"]), [None] * len(failed)
    of_failed: Columns = {
        **{name: values for name, values in kept.items() if name not in METADATA},
        "key": [item.key for item in failed],
        "name": [item.name for item in failed],
        "url": [item.url for item in failed],
        "error": [item.code for item in failed],
        "error_message": [item.detail for item in failed],
    }
    found = {}
    for name in dict.fromkeys([*stored, *of_failed]):
        every = stored.get(name, none) + of_failed.get(name, empty)
        found[name] = [every[row] for row in order]
    return found


def table_kinds(types: ColumnTypes) -> dict[str, str]:
    """Return the kind of each kept column in a table; ``types`` has the names that the list gives them."""
    kinds = kept_fields(types.kinds)
    kinds = dict(zip(_free_names(list(kinds)), kinds.values(), strict=True))
    return {**kinds, OTHER: "text"} if types.open else kinds


def fitted(columns: Columns, kinds: dict[str, str], rows: int, *, stated: bool) -> Columns:
    """Return ``columns`` with exactly the kept columns of ``kinds``, whose values are of these kinds.

    Values of other kinds, and those of other columns, are in OTHER. ``stated``: the metadata has been made
    with the types of the job, so its text in a column of JSON is JSON (``core.column_types.fit``).
    """
    found: Columns = {name: values for name, values in columns.items() if name in FIXED}
    others: dict[int, dict[str, Any]] = {
        row: _decode_dict(text) for row, text in enumerate(columns.get(OTHER, ())) if text is not None
    }

    def set_aside(name: str, values: list[Any], kind: str) -> list[Any]:
        left = list(values)
        for row, value in enumerate(values):
            if value is not None and not (kind and fits(kind, (value,))):
                others.setdefault(row, {})[name] = value
                left[row] = None
        return left

    for name, kind in kinds.items():
        if name == OTHER:
            continue
        values = columns.get(name) or [None] * rows
        if kind == "json":
            values = _as_texts(values) if stated else as_text(values)
        elif not fits(kind, values):
            values = _as_texts(values) if kind == "text" else set_aside(name, values, kind)
        found[name] = values
    if OTHER in kinds:
        for name in columns.keys() - FIXED.keys() - kinds.keys() - {OTHER}:
            set_aside(name, columns[name], "")
        found[OTHER] = as_text(others.get(row) for row in range(rows))
    return found


def _as_texts(values: Iterable[Any]) -> list[str | None]:
    """Return text as it is, and other values as JSON."""
    return [value if isinstance(value, str) else _as_json(value) for value in values]


def _as_json(value: Any) -> str | None:
    return None if value is None else as_json(value)


def as_text(values: Iterable[Any]) -> list[str | None]:
    """Return each value as JSON, None as None."""
    return list(map(_as_json, values))
