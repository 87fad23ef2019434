"""Refuse record batches that refer to what they do not have.

pyarrow follows offsets, lengths and indices of a file as they are: beyond its buffers they lead to whatever
this process has in its memory, or to none. What the values mean is not judged here: text that is not UTF-8
and times that no clock shows are read as they are, see ``arrow_values``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["check_bounds"]


def check_bounds(batch: Any) -> None:
    """Raise ArrowInvalid if a value in a record batch is outside of it."""
    for column in batch.columns:
        _bare(column).validate(full=True)


def _bare(column: Any) -> Any:
    """Return a column with the same buffers, of types of which all values within bounds are valid."""
    import pyarrow
    from pyarrow import types

    kind = column.type
    if hasattr(kind, "storage_type"):
        return _bare(column.storage)
    if types.is_dictionary(kind):
        return pyarrow.DictionaryArray.from_arrays(column.indices, _bare(column.dictionary), safe=False)
    if types.is_run_end_encoded(kind):
        parts = [column.run_ends, _bare(column.values)]
        kind = pyarrow.run_end_encoded(kind.run_end_type, parts[1].type)
    elif types.is_struct(kind) or types.is_union(kind):
        parts = [_bare(column.field(index)) for index in range(kind.num_fields)]
        fields = [pyarrow.field(str(index), part.type) for index, part in enumerate(parts)]
        is_struct = types.is_struct(kind)
        kind = pyarrow.struct(fields) if is_struct else pyarrow.union(fields, kind.mode, kind.type_codes)
    elif types.is_nested(kind):
        parts = [_bare(column.values)]
        kind = _list_of(parts[0].type, kind)
    else:
        return column.view(_bytes_of(kind))
    buffers = column.buffers()[: kind.num_buffers]  # its own are the first
    return pyarrow.Array.from_buffers(kind, len(column), buffers, offset=column.offset, children=parts)


def _list_of(value: Any, kind: Any) -> Any:
    """Return the type of lists of ``value`` whose layout is that of ``kind``."""
    import pyarrow
    from pyarrow import types

    if types.is_fixed_size_list(kind):
        return pyarrow.list_(value, kind.list_size)
    name = str(kind).partition("<")[0]
    return getattr(pyarrow, "list_" if name in ("list", "map") else name)(value)


def _bytes_of(kind: Any) -> Any:
    """Return the type without a meaning whose layout is that of ``kind``, which has no parts."""
    import pyarrow
    from pyarrow import types

    if (text := str(kind)) in ("string", "large_string", "string_view"):
        return getattr(pyarrow, text.replace("string", "binary"))()
    if types.is_decimal(kind):
        return pyarrow.binary(kind.byte_width)
    if types.is_date64(kind) or types.is_time64(kind):
        return pyarrow.int64()
    return pyarrow.int32() if types.is_time32(kind) else kind
