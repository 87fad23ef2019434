"""Parse lists of one JSON object a line (JSON Lines)."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from downloader.core.column_types import kind_of
from downloader.errors import UNDECODABLE, ConfigError
from downloader.process.long_work import Pauses
from downloader.sources.lines import Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.files import OF_ARRAY
from downloader.sources.lists.nested import Fields, path_of, prefixes, value_at
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["JsonlParser", "has_key"]

_ROW = re.compile(rb"\n(?:[ \t\r\f\v]*\S|[ \t\r\f\v]{60000})")  # of a line that is not blank

_LONGEST = 1 << 20
_LONG = 64 << 10  # bytes of a row that takes milliseconds
# Kept values are encoded and decoded recursively several times, last by readers of the dataset.
_DEEPEST = 100
_LONGEST_INT = 640  # digits; Python converts as many, whatever its limit is (sys.set_int_max_str_digits)
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair
# What a struct's field can be called.
_is_field = re.compile(r'[^"\\\0-\x1f]*').fullmatch


class JsonlParser:
    """See ``Parser``. The columns are the keys of the objects, which may differ from line to line.

    ``shown`` is the name of the list in messages; ``convert`` returns a command that reads the list.
    """

    unit = "line"
    longest = _LONGEST
    comment = b""
    row: re.Pattern[bytes] | None = _ROW
    cr_ends = False
    columns: Columns | None = None
    fixed = False
    fields: Fields
    cause = ""

    def __init__(self, shown: str = "the list", convert: Callable[[str], str] = str) -> None:
        self._shown = shown
        self._convert = convert
        self.fields = {}
        self._needed: dict[str, None] = {}
        self._fields: dict[str, str] = {}  # of the struct that a line becomes, by columns
        self._inner: list[
            tuple[str, list[str]]
        ] = []  # names with a dot, and the columns that may have them
        self._left_out: set[str] = set()
        self._keeps_all = False
        self._are_dicts = False
        self._decode: Callable[[bytes], Any] = msgspec.json.decode
        self._row: Callable[..., Any] = dict

    def close(self) -> None:
        """See ``Parser``."""

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``."""
        first = next((line for line in sample if line.strip()), b"")
        if _begins_array(first):
            raise ConfigError(
                f"{self._shown} is a JSON array, and a list has one JSON object a line; convert it with: "
                f"{self._convert(OF_ARRAY)}"
            )
        fields: dict[str, Any] = {}
        for line in sample:
            # One that is no object is a row of its own, which says so, or the sample ends in it.
            with contextlib.suppress(*UNDECODABLE):
                _add_fields(fields, _as_dict(line))
        self.fields = fields
        if not fields:
            what = "its first lines are no JSON objects, and a list has one a line"
            self.cause = f"; {what}{_between(first) or _other(first)}"
        return list(fields)

    def kinds(self, sample: Callable[[], Sequence[bytes]], columns: Columns) -> dict[str, str]:
        """See ``Parser``."""
        rows: list[dict[str, Any]] = []
        for line in sample() if columns.keep != () else ():
            with contextlib.suppress(*UNDECODABLE):
                rows.append(_as_dict(line))
        left_out = {columns.url, columns.header}
        every = dict.fromkeys(name for row in rows for name in row if name not in left_out)
        names = every if columns.keep is None else columns.keep
        return {name: kind_of(value_at(name, row) for row in rows) for name in names}

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""
        self._needed = dict.fromkeys(columns.needed)
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
        self._row = msgspec.defstruct(
            "Row", [(field, Any, None) for field in rename], rename=rename, gc=False
        )
        self._decode = msgspec.json.Decoder(self._row).decode

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""

    def table(self, lines: Numbered, following: Callable[[], bytes], more: Callable[[], Numbered]) -> Table:
        """See ``Parser``."""
        decode = self._decode
        numbers: list[int] = []
        rows: list[Any] = []
        faults: dict[int, str] = {}
        pause = Pauses()
        for number, line in lines:
            if len(line) > _LONG:
                pause()
            try:
                try:
                    row = decode(line)
                except msgspec.DecodeError:
                    row = self._lenient(line)
                if line.count(b"[") + line.count(b"{") > _DEEPEST and _is_deeper(row):
                    raise RecursionError
                rows.append(row)
            except UNDECODABLE as error:
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

    def _lenient(self, line: bytes) -> Any:
        """Return what ``_decode``, which has just failed, should return. Raises what it raises."""
        found = _lenient_dict(line)
        if self._are_dicts:
            return found
        return self._row(**{field: found.get(name) for name, field in self._fields.items()})


def has_key(line: bytes, name: str) -> bool:
    """Return whether the object in ``line`` has the column ``name``; no object has none."""
    fields: dict[str, Any] = {}
    with contextlib.suppress(*UNDECODABLE):
        _add_fields(fields, _as_dict(line))
    return bool(path_of(name, fields))


def _begins_array(line: bytes) -> bool:
    """Return whether ``line``, the first of a file, begins an array that has the rows, or all of the file.

    One that is whole and has no object in it is a row that is none.
    """
    if not line.lstrip().startswith(b"["):
        return False
    try:
        found = _decode_lenient(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return True
    return not found or any(isinstance(each, dict) for each in found)


def _between(line: bytes) -> str:
    """Return what to remove between the objects of a list that begins with ``line``."""
    begin, end = b"\x1e", b","  # RFC 7464; the items of an array
    with contextlib.suppress(*UNDECODABLE):
        _as_dict(line.strip().removeprefix(begin).removesuffix(end))
        if line.startswith(begin):
            return ": remove the record separators (0x1e) in front of them"
        return ": remove the commas behind them"
    return ""


def _other(line: bytes) -> str:
    """Return what to do with a list that begins with ``line``, which is no JSON."""
    if line.lstrip().startswith((b"{", b"[", b'"')) and b"," not in line:
        return ""
    forms = {b"\t": "tsv", b",": "csv", b"://": "txt"}
    form = next((form for mark, form in forms.items() if mark in line), "")
    return (
        f"; if it is {form}, add --list-format {form}"
        if form and not line.lstrip().startswith(b"{")
        else ""
    )


def _lenient_dict(line: bytes) -> dict[str, Any]:
    """Return the object in ``line``, which msgspec has refused, perhaps for values that Python has not.

    NaN and what is too large for a float are None, as Infinity is, which Python writes and JSON has not. An
    integer of thousands of digits is text. Half of a surrogate pair is what a byte that is not UTF-8 is in
    other lists. Raises DecodeError, UnicodeDecodeError, RecursionError.
    """
    try:
        row = _without_halves(_decode_lenient(line.decode("utf-8")))
    except json.JSONDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
    if not isinstance(row, dict):
        raise msgspec.ValidationError("not an object")
    return row


def _without_halves(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub("\udcff", value)
    if isinstance(value, list):
        return list(map(_without_halves, value))
    if isinstance(value, dict):
        return {_without_halves(name): _without_halves(each) for name, each in value.items()}
    return value


def _float(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) <= _LONGEST_INT else digits


_decode_lenient = json.JSONDecoder(
    parse_float=_float, parse_int=_int, parse_constant=lambda name: None
).decode


def _as_dict(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return _lenient_dict(line)


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
        return "not a JSON object"
    if isinstance(error, RecursionError):
        return f"values are nested more than {_DEEPEST} deep"
    # The message of msgspec has a position, and no content of the line.
    return "not valid UTF-8" if isinstance(error, UnicodeDecodeError) else "not valid JSON"
