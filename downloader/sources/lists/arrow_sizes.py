"""Tell how many bytes the values of a column take once they are decoded, whatever encodes them.

The value of a dictionary, of a run or of a view may stand in any number of rows of a file of some kB, and
one row of a large dictionary may be short. So nothing is decoded here, and buffers are not added up:
positions are followed through the encodings, and lengths are looked up where they end.
"""

from __future__ import annotations

import functools
from typing import Any, Final

__all__ = ["size_of"]

_LEAST: Final = (
    8  # bytes of a value: of the reference to it in a list of Python, also if it has none itself
)


def size_of(column: Any, most: int) -> int:
    """Return how many bytes the values of ``column`` take; of more than ``most``, at least how many."""
    from pyarrow import types

    kind = column.type
    if width := _width(kind):
        return width * len(column)
    if types.is_string(kind) or types.is_binary(kind):
        return int(column.nbytes)  # of a slice it is that of the slice, without a look at its rows
    return _size(column, _numbers(len(column)), most)


@functools.lru_cache(256)
def _width(kind: Any) -> int:
    """Return how many bytes each value of ``kind`` takes; 0 if they differ, or have parts."""
    from pyarrow import types

    if types.is_null(kind):
        return _LEAST
    is_encoded = types.is_dictionary(kind) or _is_runs(kind) or hasattr(kind, "storage_type")
    if is_encoded or types.is_nested(kind):
        return 0
    try:
        return max(_LEAST, int(kind.bit_width) // 8)
    except ValueError:
        return 0


def _is_runs(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_run_end_encoded(kind))


def _size(column: Any, at: Any, most: int) -> int:
    """Return the same of the values at the positions ``at``, any of which may be there several times."""
    from pyarrow import compute, types

    kind = column.type
    width = _width(kind)
    size = len(at) * (width or _LEAST)
    if width or not size or size > most:
        return size
    # What is around them may be much more, such as the rows of a whole block.
    first, last = compute.min_max(at).as_py().values()
    column, at = column.slice(first, last - first + 1), compute.subtract(at, first)
    nullable = column.indices if types.is_dictionary(kind) else column
    if nullable.null_count:
        at = at.filter(nullable.is_valid().take(at))  # a null may state any length and any position
    if encoded := _encoded(column, at):
        return size - len(at) * _LEAST + _size(*encoded, most)
    if types.is_struct(kind):
        parts = [(column.field(index), at) for index in range(kind.num_fields)]
    elif types.is_union(kind):
        parts = _members(column, at)
        size -= len(at) * _LEAST
    elif types.is_nested(kind):
        starts, lengths = _ranges(column, at)
        count, width = _total(lengths), _width(column.values.type)
        if width or size + count * _LEAST > most:
            return size + count * (width or _LEAST)  # so positions are not made where they are too many
        parts = [(column.values, _spread(starts, lengths))]
    else:
        return size + _total(_lengths(column, at))
    for part, positions in parts:
        size += _size(part, positions, most - size)
        if size > most:
            break
    return size


def _encoded(column: Any, at: Any) -> tuple[Any, Any] | None:
    """Return the column that has the values of an encoded one, and where; None if it is not encoded."""
    from pyarrow import types

    if hasattr(column.type, "storage_type"):
        return column.storage, at
    if types.is_dictionary(column.type):
        return column.dictionary, column.indices.take(at).cast("int64")
    if _is_runs(column.type):
        return column.values, _runs(column, at)
    return None


def _runs(column: Any, at: Any) -> Any:
    """Return which runs have the values ``at`` of a run-end encoded column, in any order."""
    import pyarrow
    from pyarrow import compute

    first = column.find_physical_offset()
    ends = column.run_ends.slice(first, column.find_physical_length()).cast("int64")
    # An end that equals a position is sorted before it: so many runs end before the value.
    order = compute.array_sort_indices(pyarrow.concat_arrays([ends, compute.add(at, column.offset)]))
    is_end = compute.less(order, len(ends))
    ended = compute.cumulative_sum(is_end.cast("int64"))
    return compute.add(ended.filter(compute.invert(is_end)), first)


def _members(column: Any, at: Any) -> list[tuple[Any, Any]]:
    """Return the columns of a union, each with the positions of those of its values that are chosen."""
    import pyarrow
    from pyarrow import compute

    kind = column.type
    # ``type_codes`` and ``offsets`` of a slice are not those of the slice.
    count, buffers = column.offset + len(column), column.buffers()
    rows = compute.add(at, column.offset)
    chosen = pyarrow.Array.from_buffers(pyarrow.int8(), count, [None, buffers[1]]).take(rows)
    inner = at
    if kind.mode == "dense":
        offsets = pyarrow.Array.from_buffers(pyarrow.int32(), count, [None, buffers[2]])
        inner = offsets.take(rows).cast("int64")
    return [
        (column.field(index), inner.filter(compute.equal(chosen, code)))
        for index, code in enumerate(kind.type_codes)
    ]


def _ranges(column: Any, at: Any) -> tuple[Any, Any]:
    """Return where the lists at these positions begin in the values of their column, and their lengths."""
    import pyarrow
    from pyarrow import compute, types

    if types.is_fixed_size_list(column.type):
        length = column.type.list_size
        starts = compute.multiply(compute.add(at, column.offset), length)
        return starts, pyarrow.repeat(pyarrow.scalar(length, "int64"), len(at))
    starts = column.offsets.take(at).cast("int64")
    if hasattr(column, "sizes"):
        return starts, column.sizes.take(at).cast("int64")
    ends = column.offsets.take(compute.add(at, 1)).cast("int64")
    return starts, compute.subtract(ends, starts)


def _spread(starts: Any, lengths: Any) -> Any:
    """Return all positions in these ranges."""
    import pyarrow
    from pyarrow import compute

    ends = compute.cumulative_sum(lengths)
    bounds = pyarrow.concat_arrays([pyarrow.array([0], "int64"), ends])
    count = bounds[-1].as_py()
    owners = compute.list_parent_indices(pyarrow.LargeListArray.from_arrays(bounds, pyarrow.nulls(count)))
    shifts = compute.subtract(starts, compute.subtract(ends, lengths))
    return compute.add(shifts.take(owners), _numbers(count))


def _lengths(column: Any, at: Any) -> Any:
    """Return the lengths of texts or byte strings, from their offsets or their views."""
    import pyarrow
    from pyarrow import compute

    is_view = str(column.type).endswith("_view")
    each = pyarrow.int64() if str(column.type).startswith("large_") else pyarrow.int32()
    count = (column.offset + len(column)) * 4 if is_view else column.offset + len(column) + 1
    found = pyarrow.Array.from_buffers(each, count, [None, column.buffers()[1]])
    first = compute.add(at, column.offset)
    if is_view:  # of 16 bytes, the first 4 of which are the length
        return found.take(compute.multiply(first, 4))
    return compute.subtract(found.take(compute.add(first, 1)), found.take(first))


def _numbers(count: int) -> Any:
    """Return the numbers from 0 to before ``count``."""
    import pyarrow
    from pyarrow import compute

    return compute.subtract(compute.cumulative_sum(pyarrow.repeat(pyarrow.scalar(1, "int64"), count)), 1)


def _total(numbers: Any) -> int:
    from pyarrow import compute

    return compute.sum(numbers.cast("int64")).as_py() or 0
