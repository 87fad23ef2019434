"""Import pyarrow, and convert its columns to Python objects."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from downloader.core.column_types import UNKNOWN

__all__ = ["field_at", "fields_of", "kind_at", "load_pyarrow", "values_of"]

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY: Final = 86400  # seconds
_CYCLE_YEARS: Final = 400  # after which the calendar repeats itself
_CYCLE: Final = 146097 * _DAY


def load_pyarrow() -> Any:
    """Import pyarrow and return it.

    Its own allocator keeps what was freed, for speed. Here memory matters more, and it can be chosen only
    by a variable that is read when pyarrow is imported: 14 MB less with a list of two million rows.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import pyarrow

    return pyarrow


def values_of(column: Any) -> list[Any]:
    """Return the values of a column; a value that Python's types cannot have is text.

    These are times with nanoseconds, years outside 1 to 9999, time zones that this system does not know,
    and text that is not valid UTF-8, which pyarrow does not refuse in a file, and which gets surrogates.
    They may be anywhere in a list, a struct or a map. What becomes of a value does not depend on others,
    so a row is the same wherever batches are cut. Nor does it depend on whether pandas is installed:
    pyarrow would make objects of pandas of nanoseconds.
    """
    if _has_nanoseconds(column.type):
        return _piecewise(column)
    column = _decoded(column)
    try:
        found: list[Any] = column.to_pylist()
    except MemoryError:
        raise
    except Exception:
        # Which error depends on the type of the value: OverflowError, ArrowInvalid, UnicodeDecodeError, …
        found = _piecewise(column)
    return found


def _decoded(column: Any) -> Any:
    """Return a column of text without its dictionary or runs, with which each value takes 2 µs."""
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind) and types.is_string(kind.value_type):
        return column.dictionary_decode()
    if types.is_run_end_encoded(kind) and types.is_string(kind.value_type):
        return compute.run_end_decode(column)
    return column


def _piecewise(column: Any) -> list[Any]:
    """Return the values of a column some of which cannot be converted, down to the parts of each."""
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind):
        return values_of(column.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return values_of(compute.run_end_decode(column))
    if types.is_struct(kind):
        return _structs(column)
    if _is_nanoseconds(kind):
        return _nanoseconds(column)
    if hasattr(kind, "storage_type"):
        if _has_nanoseconds(kind):
            return values_of(column.storage)
        return _each(column, lambda at: values_of(column.storage.slice(at, 1))[0])
    if types.is_nested(kind) and not types.is_union(kind):
        return [_items(scalar) for scalar in column]
    return _each(column, lambda at: _leaf(column.slice(at, 1)))


def _is_nanoseconds(kind: Any) -> bool:
    from pyarrow import types

    is_time = types.is_timestamp(kind) or types.is_duration(kind) or types.is_time64(kind)
    return bool(is_time and kind.unit == "ns")


@functools.lru_cache(256)
def _has_nanoseconds(kind: Any) -> bool:
    """Return whether values of ``kind`` are or have times with nanoseconds."""
    from pyarrow import types

    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _has_nanoseconds(kind.value_type)
    if hasattr(kind, "storage_type"):
        return _has_nanoseconds(kind.storage_type)
    if types.is_nested(kind) and not types.is_union(kind):
        return any(_has_nanoseconds(kind.field(at).type) for at in range(kind.num_fields))
    return _is_nanoseconds(kind)


def _nanoseconds(column: Any) -> list[Any]:
    """Return the values of a column of times with nanoseconds: those that have any are text."""
    import pyarrow
    from pyarrow import types

    kind = column.type
    if types.is_timestamp(kind):
        micro = pyarrow.timestamp("us", kind.tz)
    else:
        micro = pyarrow.duration("us") if types.is_duration(kind) else pyarrow.time64("us")
    try:
        return values_of(column.cast(micro))  # it refuses to lose digits
    except pyarrow.ArrowInvalid:
        if len(column) == 1:
            return [_leaf(column)]
        return [_nanoseconds(column.slice(at, 1))[0] for at in range(len(column))]


def _each(column: Any, otherwise: Callable[[int], Any]) -> list[Any]:
    """Return the values of a column, and ``otherwise`` of the index of each that cannot be converted."""
    found: list[Any] = []
    for at, scalar in enumerate(column):
        try:
            value = scalar.as_py()
        except MemoryError:
            raise
        except Exception:
            value = otherwise(at)
        found.append(value)
    return found


def _structs(column: Any) -> list[dict[str, Any] | None]:
    names = [field.name for field in column.type]
    parts = [values_of(column.field(at)) for at in range(len(names))]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
    return [row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)]


def _items(scalar: Any) -> list[Any] | None:
    """Return the values in a list, or the pairs in a map."""
    if not scalar.is_valid:
        return None
    values = values_of(scalar.values)
    is_map = hasattr(scalar.type, "key_type")
    return [(entry["key"], entry["value"]) for entry in map(_keyed, values)] if is_map else values


def _keyed(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of a map with the names of its parts, which a file may call otherwise."""
    return dict(zip(("key", "value"), entry.values(), strict=True))


def _leaf(column: Any) -> Any:
    """Return the value of a column that has one, which has no parts and cannot be converted, as text."""
    import pyarrow
    from pyarrow import types

    kind = column.type
    try:
        if str(kind) in ("string", "large_string", "string_view"):
            return _text(column.cast("binary")[0].as_py())
        if types.is_duration(kind):
            return _duration(column.cast("int64")[0].as_py(), _PER_SECOND[kind.unit])
        if getattr(kind, "tz", "UTC") not in ("UTC", None):
            # Perhaps this system does not know the zone. The time is that of UTC, whatever the zone is.
            (value,) = values_of(column.cast(pyarrow.timestamp(kind.unit, "UTC")))
            return value
        if types.is_timestamp(kind):
            zone = "Z" if kind.tz else ""
            return _moment(column.cast("int64")[0].as_py(), _PER_SECOND[kind.unit]) + zone
        if types.is_date32(kind):
            return _date(column.cast("int32")[0].as_py())
        if types.is_date64(kind):
            return _date(column.cast("int64")[0].as_py() // (_DAY * 1000))
        return str(column.cast("string")[0].as_py())
    except MemoryError:
        raise
    except Exception:
        return f"<a value of type {kind}>"


def _date(days: int) -> str:
    return _moment(days * _DAY, 1).partition("T")[0]


def _moment(ticks: int, per_second: int) -> str:
    """Return a time since 1970 as ISO 8601 has it, in any year: Arrow's own text has years of 16 bits."""
    seconds, rest = divmod(ticks, per_second)
    cycles, seconds = divmod(seconds, _CYCLE)
    moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    year = moment.year + _CYCLE_YEARS * cycles
    digits = len(str(per_second)) - 1
    fraction = f".{rest:0{digits}}" if digits else ""
    return f"{'-' if year < 0 else ''}{abs(year):04}{moment.strftime('-%m-%dT%H:%M:%S')}{fraction}"


def _duration(ticks: int, per_second: int) -> str:
    """Return a duration as ISO 8601 has it, in seconds."""
    seconds, rest = divmod(abs(ticks), per_second)
    digits = len(str(per_second)) - 1
    fraction = f".{rest:0{digits}}".rstrip("0").rstrip(".") if digits else ""
    return f"{'-' if ticks < 0 else ''}PT{seconds}{fraction}S"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def fields_of(fields: Any) -> dict[str, Any]:
    """Return the names of a schema's fields, or of a struct's, each with the fields that it has itself."""
    from pyarrow import types

    return {field.name: fields_of(field.type) if types.is_struct(field.type) else {} for field in fields}


def kind_at(schema: Any, path: Sequence[str]) -> str:
    """Return the kind (see ``core.column_types``) of the values that ``values_of`` returns of a column.

    ``path``: its name in ``schema``, then those of fields of structs.
    """
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return _kind(kind)


def _kind(kind: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _kind(kind.value_type)
    if hasattr(kind, "storage_type"):
        return "json" if types.is_nested(kind.storage_type) else "text"
    if types.is_nested(kind):
        return "text" if types.is_union(kind) else "json"
    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind):
        return "uint" if types.is_uint64(kind) else "int"
    if types.is_floating(kind):
        return "float"
    return UNKNOWN if types.is_null(kind) else "text"


def field_at(batch: Any, path: Sequence[str]) -> Any:
    """Return the column of a record batch at ``path``: its name, then those of fields of structs."""
    from pyarrow import compute

    column = batch.column(batch.schema.get_field_index(path[0]))
    return compute.struct_field(column, list(path[1:])) if len(path) > 1 else column
