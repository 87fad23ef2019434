"""Find the value ``a.b`` in columns that are structs: the field ``b`` of the column ``a``.

A column that is itself called ``a.b`` comes first, and of several ways to read a name the one whose first
part is the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

__all__ = ["NO_FIELDS", "Fields", "leaves", "path_of", "prefixes", "value_at", "without"]

Fields = Mapping[str, Any]
"""The names of columns, or of the fields of a struct, each with the ``Fields`` that it has itself."""
NO_FIELDS: Final[Fields] = MappingProxyType({})


def prefixes(name: str) -> Iterator[tuple[str, str]]:
    """Yield each way to part ``name`` at a dot, the longest first part first."""
    at = len(name)
    while (at := name.rfind(".", 0, at)) >= 0:
        yield name[:at], name[at + 1 :]


def path_of(name: str, fields: Fields) -> tuple[str, ...]:
    """Return the names that lead to ``name`` in ``fields``, () if it is not there."""
    if name in fields:
        return (name,)
    for first, rest in prefixes(name):
        if first in fields and (path := path_of(rest, fields[first])):
            return (first, *path)
    return ()


def leaves(fields: Fields, depth: int = 8) -> Iterator[str]:
    """Yield the names of all values in ``fields``, those in structs with dots; none that is deeper."""
    for name, inner in fields.items():
        if not inner:
            yield name
        elif depth:
            yield from (f"{name}.{each}" for each in leaves(inner, depth - 1))


def value_at(name: str, row: Mapping[str, Any]) -> Any:
    """Return the value of ``name`` in a row whose structs are dicts, None if it is not there."""
    if name in row:
        return row[name]
    for first, rest in prefixes(name):
        if isinstance(inner := row.get(first), dict) and (value := value_at(rest, inner)) is not None:
            return value
    return None


def without(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return ``row`` without the value of ``name``."""
    if name in row:
        return {key: value for key, value in row.items() if key != name}
    for first, rest in prefixes(name):
        if isinstance(inner := row.get(first), dict) and (less := without(rest, inner)) is not inner:
            return {**row, first: less}
    return row
