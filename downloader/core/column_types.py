"""Decide the types of kept columns once for a whole job, so that all of its tables have the same schema.

A file of a list may declare the types of its columns (Parquet, Arrow); those of JSON are taken from the
values at its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final

import msgspec

__all__ = [
    "EXACT_AS_FLOAT",
    "LARGEST_INT",
    "MOST_COLUMNS",
    "OTHER",
    "UNKNOWN",
    "ColumnTypes",
    "as_json",
    "fit",
    "fits",
    "joined",
    "kind_of",
    "settled",
]

OTHER: Final = "list.other"
"""The column of a table that has, as a JSON object, the values for which it has no column of their type."""
UNKNOWN: Final = "unknown"
"""The kind of a column without a value."""
MOST_COLUMNS: Final = 1000
"""Columns that are kept: every row has them, and every table has one for each."""
LARGEST_INT: Final = 2**63 - 1
EXACT_AS_FLOAT: Final = 2**53
_NUMBERS: Final = frozenset({"int", "uint", "float"})


class ColumnTypes(msgspec.Struct, frozen=True):
    """The types of the kept columns of a job, in their order: text, json, int, uint, float or bool.

    ``open``: rows may have further columns, and values of other types, which are in OTHER. ``keep``: the
    columns that were asked for.
    """

    kinds: dict[str, str] = {}
    open: bool = False
    keep: str = ""

    def encode(self) -> str:
        """Return the types as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> ColumnTypes | None:
        """Return what ``encode`` has written, None for "". Raises what is in ``errors.UNDECODABLE``."""
        return msgspec.json.decode(text, type=cls) if text else None

    def extended(self, other: ColumnTypes) -> ColumnTypes:
        """Return these types with the columns that only ``other`` has, and what it asks for."""
        return ColumnTypes({**other.kinds, **self.kinds}, self.open or other.open, other.keep)


def kind_of(values: Iterable[Any]) -> str:
    """Return the kind of a column with ``values``.

    It is json where these are of several types, or nested; UNKNOWN where there is none.
    """
    found = [value for value in values if value is not None]
    types = set(map(type, found))
    if not types:
        return UNKNOWN
    if types == {str}:
        return "text"
    return next((kind for kind in ("bool", "int", "uint", "float") if fits(kind, found)), "json")


_TYPES: Final[Mapping[str, frozenset[type]]] = {
    "text": frozenset({str}),
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "uint": frozenset({int}),
    "float": frozenset({int, float}),
}
_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "int": (-LARGEST_INT - 1, LARGEST_INT),
    "uint": (0, 2 * LARGEST_INT + 1),
    "float": (-EXACT_AS_FLOAT, EXACT_AS_FLOAT),
}


def fits(kind: str, values: Sequence[Any]) -> bool:
    """Return whether a column of ``kind`` has each of ``values`` as it is; None fits every column."""
    types = set(map(type, values)) - {type(None)}
    if not types <= _TYPES[kind]:
        return False
    if int not in types:
        return True
    lowest, highest = _LIMITS[kind]
    numbers = [value for value in values if type(value) is int]
    return lowest <= min(numbers) and max(numbers) <= highest


def fit(values: dict[str, Any], kinds: Mapping[str, str]) -> None:
    """Change ``values`` so that each is of the kind of its column, or None; what does not fit is in OTHER.

    Values of text may also be binary or times, which are text in JSON. Lists and structs of a column of
    JSON stay; its other values are JSON as text. A column that is not in ``kinds`` stays, too.
    """
    others = {}
    for name, value in values.items():
        kind = kinds.get(name)
        if value is None or kind is None or type(value) is _SAME[kind]:
            continue
        if kind == "int" and type(value) is int and -LARGEST_INT <= value <= LARGEST_INT:
            continue  # quicker than below
        if type(value) is float and not isfinite(value):
            values[name] = None
        elif kind == "json":
            if not isinstance(value, (list, dict)):
                values[name] = as_json(value)
        elif kind == "text":
            if isinstance(value, (int, float, list, dict)):
                values[name] = as_json(value)
        elif not fits(kind, (value,)):
            others[name] = value
            values[name] = None
        elif kind == "float":
            values[name] = float(value)
    if others:
        values[OTHER] = as_json(others)


_SAME: Final[Mapping[str, type | None]] = {
    **{"text": str, "float": float, "bool": bool},
    **{"int": None, "uint": None, "json": None},
}


def as_json(value: Any) -> str:
    """Return ``value`` as JSON."""
    return msgspec.json.encode(value).decode()


def joined(found: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the kinds of the columns of several files."""
    kinds: dict[str, str] = {}
    for each in found:
        for name, kind in each.items():
            kinds[name] = _wider(kinds.get(name, UNKNOWN), kind)
    return kinds


def _wider(one: str, other: str) -> str:
    both = {one, other} - {UNKNOWN}
    if len(both) < 2:
        return next(iter(both), UNKNOWN)
    if both <= _NUMBERS:
        return "float" if "float" in both else "int"
    return "json"


def settled(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return ``kinds`` with text for UNKNOWN.

    A type of its own (null) would break readers that take the schema of the first shard for all.
    """
    return {name: "text" if kind == UNKNOWN else kind for name, kind in kinds.items()}
