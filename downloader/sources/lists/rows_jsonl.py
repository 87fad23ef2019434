"""Parse lists of one JSON object a line (JSON Lines)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from downloader.core.column_types import kind_of
from downloader.sources.lines import Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import Fields, prefixes, value_at
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["JsonlParser"]

_LONGEST = 1 << 20
# Kept values are encoded and decoded recursively several times, last by readers of the dataset.
_DEEPEST = 100
# Text as a whole, in which these are words, or a number that JSON has not.
_NO_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\bInfinity\b|\bNaN\b)')
# What a struct's field can be called.
_is_field = re.compile(r'[^"\\\0-\x1f]*').fullmatch


class JsonlParser:
    """See ``Parser``. The columns are the keys of the objects, which may differ from line to line."""

    unit = "line"
    longest = _LONGEST
    comment = b""
    cr_ends = False
    columns: Columns | None = None
    fixed = False
    fields: Fields

    def __init__(self) -> None:
        self.fields = {}
        self._needed: list[str] = []
        self._fields: dict[str, str] = {}  # of the struct that a line becomes, by columns
        self._inner: list[
            tuple[str, list[str]]
        ] = []  # names with a dot, and the columns that may have them
        self._left_out: set[str] = set()
        self._keeps_all = False
        self._are_dicts = False
        self._decode: Callable[[bytes], Any] = msgspec.json.decode

    def close(self) -> None:
        """See ``Parser``."""

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``."""
        fields: dict[str, Any] = {}
        for line in sample:
            # One that is no object is a row of its own, which says so, or the sample ends in it.
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                _add_fields(fields, _as_dict(line))
        self.fields = fields
        return list(fields)

    def kinds(self, sample: Callable[[], Sequence[bytes]], columns: Columns) -> dict[str, str]:
        """See ``Parser``."""
        rows: list[dict[str, Any]] = []
        for line in sample() if columns.keep != () else ():
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                rows.append(_as_dict(line))
        left_out = {columns.url, columns.header}
        every = dict.fromkeys(name for row in rows for name in row if name not in left_out)
        names = every if columns.keep is None else columns.keep
        return {name: kind_of(value_at(name, row) for row in rows) for name in names}

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""
        self._needed = columns.needed
        self._keeps_all = columns.keep is None
        self._left_out = {columns.url, columns.header}
        self._inner = [
            (name, [first for first, _ in prefixes(name)]) for name in self._needed if "." in name
        ]
        firsts = [first for _, names in self._inner for first in names]
        self._fields = {name: f"c{at}" for at, name in enumerate(dict.fromkeys([*self._needed, *firsts]))}
        rename = {field: name for name, field in self._fields.items()}
        self._are_dicts = self._keeps_all or not all(map(_is_field, self._fields))
        if self._are_dicts:
            self._decode = msgspec.json.Decoder(dict[str, Any]).decode
            return
        # Values of other keys are not made.
        row = msgspec.defstruct("Row", [(field, Any, None) for field in rename], rename=rename, gc=False)
        self._decode = msgspec.json.Decoder(row).decode

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""

    def table(self, lines: Numbered, following: Callable[[], bytes], more: Callable[[], Numbered]) -> Table:
        """See ``Parser``."""
        decode = self._decode
        numbers: list[int] = []
        rows: list[Any] = []
        faults: dict[int, str] = {}
        for number, line in lines:
            try:
                try:
                    row = decode(line)
                except msgspec.DecodeError:
                    row = _without_nan(decode, line)
                if line.count(b"[") + line.count(b"{") > _DEEPEST and _is_deeper(row):
                    raise RecursionError
                rows.append(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if not line.strip():
                    continue
                faults[len(rows)] = _why(line, error)
                rows.append(None)
            numbers.append(number)
        if self._are_dicts:
            columns = {name: [row.get(name) if row else None for row in rows] for name in self._needed}
            for name, _ in self._inner:
                columns[name] = [value_at(name, row) if row else None for row in rows]
            extra = [{k: v for k, v in (row or {}).items() if k not in self._left_out} for row in rows]
            return Table(numbers, columns, faults, extra if self._keeps_all else None)
        columns = {
            name: [getattr(row, field, None) for row in rows]
            for name, field in self._fields.items()
            if name in self._needed
        }
        for name, firsts in self._inner:
            columns[name] = [
                value_at(name, {first: getattr(row, self._fields[first], None) for first in firsts})
                if value is None
                else value
                for value, row in zip(columns[name], rows, strict=True)
            ]
        return Table(numbers, columns, faults)


def _without_nan(decode: Callable[[bytes], Any], line: bytes) -> Any:
    """Return what ``decode``, which has just failed, makes of ``line``.

    NaN and Infinity, which Python writes and JSON has not, are null. Raises what ``decode`` raises.
    """
    if b"NaN" in line or b"Infinity" in line:
        line = _NO_NUMBER.sub(lambda hit: b"null" if hit[1] else hit[0], line)
    return decode(line)


def _as_dict(line: bytes) -> dict[str, Any]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    try:
        return decode(line)
    except msgspec.DecodeError:
        return _without_nan(decode, line)  # type: ignore[no-any-return]


def _add_fields(fields: dict[str, Any], row: dict[str, Any]) -> None:
    for name, value in row.items():
        inner = fields.setdefault(name, {})
        if isinstance(value, dict) and value:
            _add_fields(inner, value)


def _is_deeper(row: Any) -> bool:
    """Return whether a value of ``row`` is nested more than _DEEPEST deep."""
    if not isinstance(row, dict):
        row = msgspec.structs.asdict(row)
    level: list[Any] = list(row.values())
    for _ in range(_DEEPEST):
        level = [each for value in level for each in _inner(value)]
    return any(isinstance(value, (list, dict)) for value in level)


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        return iter(value)
    return iter(value.values() if isinstance(value, dict) else ())


def _why(line: bytes, error: Exception) -> str:
    if len(line) >= _LONGEST and not line.endswith(b"\n"):
        return f"longer than {_LONGEST >> 20} MiB"
    if isinstance(error, msgspec.ValidationError):
        return "a number out of range" if "out of range" in str(error) else "not a JSON object"
    if isinstance(error, RecursionError):
        return f"values are nested more than {_DEEPEST} deep"
    # The message of msgspec has a position, and no content of the line.
    return "not valid UTF-8" if isinstance(error, UnicodeDecodeError) else "not valid JSON"
