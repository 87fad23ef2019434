"""Build records from what another process wrote as JSON: what does not fit their types is refused.

With dataclasses, since the diagnostics run as a zip file, which can have no compiled packages.
"""

from __future__ import annotations

import dataclasses
import math
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["typed"]

T = TypeVar("T")


def typed(value: Any, kind: type[T]) -> T:
    """Return the ``kind``, a dataclass, that ``value`` has the fields of; others are left out.

    Fields may have the types str, int, float, bool and None, lists, tuples, unions and dataclasses of
    these. Raises ValueError where ``value`` does not fit.
    """
    found: T = _as(value, kind)
    return found


def _as(value: Any, kind: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _record(value, kind)
    if origin is UnionType:
        return _any_of(value, inner)
    if origin is list and isinstance(value, list):
        return [_as(each, inner[0]) for each in value]
    if origin is tuple and isinstance(value, list):
        if inner[-1] is ...:
            return tuple(_as(each, inner[0]) for each in value)
        if len(value) == len(inner):
            return tuple(map(_as, value, inner))
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind in (str, int, bool, NoneType) and type(value) is kind:
        return value
    raise ValueError(f"{type(value).__name__} is not {kind}")


def _record(value: Any, kind: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} is not {kind.__name__}")
    types = get_type_hints(kind)
    try:
        return kind(**{name: _as(value[name], types[name]) for name in types if name in value})
    except TypeError as error:
        raise ValueError(str(error)) from None


def _any_of(value: Any, kinds: tuple[Any, ...]) -> Any:
    for kind in kinds:
        try:
            return _as(value, kind)
        except ValueError:
            continue
    raise ValueError(f"{type(value).__name__} is none of {kinds}")
