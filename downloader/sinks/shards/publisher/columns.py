"""Turn the metadata of samples into columns, and choose a type for each kept column.

Plain Python: pyarrow and JSON Lines get the same columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from downloader.sinks.shards.jobs import METADATA, FailedItem

__all__ = ["FIXED", "INFORMATION", "Columns", "Kinds", "Reader", "as_text", "merge", "with_failed"]

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
_LARGEST_INT: Final = 2**63 - 1
_EXACT_AS_FLOAT: Final = 2**53
_decode_dict = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class Reader:
    """A decoder of metadata, quick as long as all samples have the same fields.

    A kept column with the name of one of ours gets underscores behind its name.
    """

    def __init__(self) -> None:
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
            return _columns_of_dicts([_decode_dict(text) for text in texts])
        fields = zip(self._names, self._fields, strict=True)
        return {name: list(map(attrgetter(field), rows)) for name, field in fields}

    def _prepare(self, found: list[str]) -> None:
        kept = [name for name in found if name not in METADATA]
        sources = [*METADATA, *kept]
        self._names = [*METADATA, *_free_names(kept)]
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


def _columns_of_dicts(rows: list[dict[str, Any]]) -> Columns:
    kept = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in METADATA]
    for name in METADATA:
        for row in rows:
            msgspec.convert(row.get(name), _TYPES[FIXED[name]])
    found: Columns = {name: [row.get(name) for row in rows] for name in METADATA}
    for name, free in zip(kept, _free_names(kept), strict=True):
        found[free] = [row.get(name) for row in rows]
    return found


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


class Kinds:
    """The types of kept columns, as far as their values have been seen.

    A column is text, int, float or bool. It becomes JSON text where its values are of several types, or
    nested, or integers that the type cannot have. A column without any value is text: a type of its own for
    that (null) would break readers that take the schema of the first shard for all.
    """

    def __init__(self) -> None:
        self._types: dict[str, set[type]] = {}
        self._largest: dict[str, int] = {}

    def see(self, columns: Columns) -> None:
        """Take account of the kept columns among ``columns``."""
        for name, values in columns.items():
            if name in FIXED:
                continue
            types = set(map(type, values))
            self._types.setdefault(name, set()).update(types)
            if int in types:
                largest = max(abs(value) for value in values if type(value) is int)
                self._largest[name] = max(largest, self._largest.get(name, 0))

    def result(self) -> dict[str, str]:
        """Return text, int, float, bool or json for each kept column."""
        return {name: self._kind(name, types - {type(None)}) for name, types in self._types.items()}

    def _kind(self, name: str, types: set[type]) -> str:
        largest = self._largest.get(name, 0)
        if types <= {str}:
            return "text"
        if types == {bool}:
            return "bool"
        if types == {int} and largest <= _LARGEST_INT:
            return "int"
        if types <= {int, float} and largest <= _EXACT_AS_FLOAT:
            return "float"
        return "json"


def merge(columns: Columns, kinds: dict[str, str], rows: int) -> Columns:
    """Return ``columns`` with all kept columns of ``kinds``, those of JSON text encoded."""
    found: Columns = {name: values for name, values in columns.items() if name in FIXED}
    for name, kind in kinds.items():
        values = columns.get(name) or [None] * rows
        found[name] = as_text(values) if kind == "json" else values
    return found


def as_text(values: Iterable[Any]) -> list[str | None]:
    """Return each value as JSON, None as None."""
    return [None if value is None else _encode(value).decode() for value in values]
