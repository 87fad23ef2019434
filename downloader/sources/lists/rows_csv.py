"""Parse lists of comma-separated or tab-separated values (RFC 4180), with or without a header.

The standard library's reader is used: other libraries read from positions of their own, so a run could not
go on in the middle of a file, and take as long as this one where text becomes Python objects.

A row that cannot be read is a fault of that row. Tab-separated values are mostly published without quoting,
so a quote at the beginning of a field may be text. It then joins lines that are rows of their own, until a
field with another quote ends it. That is found, and such a row ends where its line does.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import gevent

from downloader.core.naming import shown
from downloader.errors import ConfigError
from downloader.sources.lines import Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import NO_FIELDS
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["CsvParser"]

_LONGEST = 1 << 20  # bytes of a line
_LONGEST_FIELD = 16 << 20  # characters
_GIVE_UP = 64 << 20  # characters of a row after which its quote counts as not closed
_TRIES = 100  # lines of a list without a header, to find one that can be read
_HINT = "; where quotes are text, --quote none reads them"

More = Callable[[], Numbered]


class CsvParser:
    """See ``Parser``. ``where`` is the name of the list in messages.

    Without a header, columns are named by their positions: "1", "2", … ``quoted``: quotes enclose fields;
    otherwise they are text.
    """

    unit = "line"
    longest = _LONGEST
    comment = b""
    cr_ends = False
    columns: Columns | None = None
    fixed = True
    fields = NO_FIELDS

    def __init__(self, where: str, delimiter: str, *, header: bool, quoted: bool = True) -> None:
        self._where = where
        self._delimiter = delimiter
        self._has_header = header
        self._quoted = quoted
        self._present: list[str] = []
        self._picked: list[tuple[str, int]] = []
        self._url = -1  # position of the column with the URLs
        self._warned = False
        csv.field_size_limit(_LONGEST_FIELD)

    def close(self) -> None:
        """See ``Parser``."""

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``. Raises ConfigError if the header cannot be read."""
        first = self._first_row(list(map(_text, sample)))
        if self._has_header:
            self._present = [name.strip() for name in first]
        else:
            self._present = [str(position) for position in range(1, len(first) + 1)]
        return self._present

    def _first_row(self, sample: list[str]) -> list[str]:
        problem = ""
        for start in range(min(len(sample), _TRIES)):
            try:
                row: list[str] = next(self._reader(sample[start:]), [])
                if row:
                    return row
            except csv.Error as error:
                problem = problem or _reason(error)
                if self._has_header:
                    raise ConfigError(
                        f"{self._where}: the header, line {start + 1}, has {problem}"
                    ) from None
        if problem:
            raise ConfigError(f"{self._where}: none of its first lines can be read: {problem}")
        return []

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""
        self._picked = [(name, self._present.index(name)) for name in columns.needed if self._present]
        self._url = self._present.index(columns.url) if columns.url in self._present else -1

    def kinds(self, sample: Callable[[], Sequence[bytes]], columns: Columns) -> dict[str, str]:
        """See ``Parser``."""
        return dict.fromkeys(columns.keep or (), "text")

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""
        rows = 0 if self._has_header else 1
        while not rows and (part := lines.read(1)).lines:
            header = [(number, line.removeprefix(codecs.BOM_UTF8)) for number, line in part.lines]
            rows = len(self._rows(header, lambda: lines.read(1).lines)[0])

    def table(self, lines: Numbered, following: Callable[[], bytes], more: More) -> Table:
        """See ``Parser``."""
        numbers, rows, faults = self._rows(lines, more)
        width = len(self._present)
        if not set(map(len, rows)) <= {width}:
            for index, row in enumerate(rows):
                if len(row) != width:
                    faults.setdefault(index, f"{len(row)} fields, and the {self._first} has {width}")
                    rows[index] = [*row, *[""] * width][:width]
        columns = {name: list(map(itemgetter(at), rows)) for name, at in self._picked}
        return Table(numbers, columns, faults, note=self._note(numbers, faults))

    @property
    def _first(self) -> str:
        return "header" if self._has_header else "first row"

    def _note(self, numbers: Sequence[int], faults: dict[int, str]) -> str:
        """Return what to say, once, about quotes that may be text."""
        if self._warned or not faults:
            return ""
        index = next((at for at, why in faults.items() if why.endswith(_HINT)), -1)
        if index < 0:
            return ""
        self._warned = True
        return f"{self._where}: line {numbers[index]}: {faults[index]}"

    def _rows(self, lines: Numbered, more: More) -> tuple[Sequence[int], list[list[str]], dict[int, str]]:
        """Return the rows that begin in ``lines``, the number of the first line of each, and their faults.

        There are further rows where a row turns out to end before lines that were read for it.
        """
        if not lines:
            return (), [], {}
        first = lines[0][0]
        if (texts := self._texts(lines)) is not None:
            if (rows := self._unquoted("".join(texts))) is not None:
                return range(first, first + len(rows)), rows, {}
            try:
                # Refuses a quote that is open at the end, and also what is only unusual.
                reader = self._reader(texts)
                rows = list(reader)
                if len(rows) == reader.line_num and all(rows):
                    return range(first, first + len(rows)), rows, {}
            except csv.Error:
                pass
        return self._one_by_one(lines, more)

    def _reader(self, lines: Iterable[str]) -> Any:
        if self._quoted:
            return csv.reader(lines, delimiter=self._delimiter, strict=True)
        return csv.reader(lines, delimiter=self._delimiter, strict=True, quoting=csv.QUOTE_NONE)

    def _unquoted(self, text: str) -> list[list[str]] | None:
        """Return the rows of ``text``, one a line, if it has no quotes and no empty line, else None.

        Takes half the time of the library's reader.
        """
        if self._quoted and '"' in text:
            return None
        text = text.replace("\r\n", "\n").removesuffix("\n")
        if "\r" in text or "\n\n" in text or not text or text[0] == "\n" or text[-1] == "\n":
            return None
        return [line.split(self._delimiter) for line in text.split("\n")]

    def _one_by_one(self, lines: Numbered, more: More) -> tuple[list[int], list[list[str]], dict[int, str]]:
        """Return the rows where some have several lines, or none, or cannot be read."""
        numbers: list[int] = []
        rows: list[list[str]] = []
        faults: dict[int, str] = {}
        source = _RowLines(lines, more, self._looks_like_row)
        reader = self._reader(source)
        while source.begin_row():
            row: list[str] = []
            why = ""
            try:
                row = next(reader)
            except _Refused as refused:
                why = str(refused)
            except csv.Error as error:
                why = _fault(error, source)
            if why:
                reader = self._reader(source)
                faults[len(rows)] = why
            if row or why:
                numbers.append(source.number)
                rows.append(row)
        return numbers, rows, faults

    def _looks_like_row(self, text: str) -> bool:
        """Return whether ``text`` would be a row, were quotes only text."""
        fields = text.split(self._delimiter)
        if len(fields) != len(self._present) or self._url < 0:
            return False
        return fields[self._url].lstrip(' "').lower().startswith(("http://", "https://"))

    def _texts(self, lines: Numbered) -> list[str] | None:
        """Return ``lines`` as text, None if one is too long."""
        found = [line for _, line in lines]
        if sum(map(len, found)) >= _LONGEST and any(map(_is_cut, found)):
            return None
        try:
            return list(map(bytes.decode, found))
        except UnicodeDecodeError:
            return list(map(_text, found))


def _fault(error: csv.Error, source: _RowLines) -> str:
    """Return why a row cannot be read, and set ``source`` behind it."""
    why = str(error)
    if "field limit" in why:
        if source.skip_quotes():
            return f"a field is longer than {_LONGEST_FIELD >> 20} MiB"
        why = "unexpected end"
    if "unexpected end" in why:
        source.go_back()
        return f"a quote that is not closed{_HINT}"
    if "expected after" in why:
        last = source.last
        source.go_back()
        return f"text behind a closing quote{last}{_HINT}"
    return _reason(error)


class _Refused(Exception):
    """The row is not read any further: the reason."""


class _RowLines:
    """The lines of rows, for a reader. It raises _Refused where a row should not go on.

    ``number``: of the first line of the row.
    """

    def __init__(self, lines: Numbered, more: More, is_row: Callable[[str], bool]) -> None:
        self._lines = list(lines)
        self._more = more
        self._is_row = is_row
        self._start = 0
        self._next = 0
        self.number = 0

    def begin_row(self) -> bool:
        """Begin a row behind the last one; return whether there is a line for it."""
        self._start = self._next
        if self._start == len(self._lines):
            return False
        self.number = self._lines[self._start][0]
        return True

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._next == len(self._lines):
            if not (got := self._more()):
                raise StopIteration
            self._lines += got
        number, line = self._lines[self._next]
        self._next += 1
        text = _text(line)
        if _is_cut(line):
            at = "" if number == self.number else f"line {number} of the row is "
            self.go_back()
            raise _Refused(f"{at}longer than {_LONGEST >> 20} MiB")
        if (
            number != self.number
            and self._is_row(text)
            and self._is_row(_text(self._lines[self._start][1]))
        ):
            self.go_back()
            raise _Refused(f"a quote that goes on into line {number}, which looks like a row{_HINT}")
        return text

    @property
    def last(self) -> str:
        """Say in which line of the row reading has stopped, if it is not the first."""
        number = self._lines[self._next - 1][0]
        return "" if number == self.number else f" in line {number}"

    def go_back(self) -> None:
        """Continue with the second line of the row, as the beginning of another."""
        self._next = self._start + 1

    def skip_quotes(self) -> bool:
        """Continue behind the line in which the last quote is closed; return whether there is one."""
        passed = [line for _, line in self._lines[self._start : self._next]]
        is_open = sum(line.count(b'"') for line in passed) % 2
        size = sum(map(len, passed))
        while is_open:
            if self._next == len(self._lines):
                if size > _GIVE_UP or not (got := self._more()):
                    return False
                self._lines += got
                gevent.sleep(0)  # heartbeats must continue
            line = self._lines[self._next][1]
            self._next += 1
            size += len(line)
            is_open = (is_open + line.count(b'"')) % 2
        return True


def _is_cut(line: bytes) -> bool:
    return len(line) >= _LONGEST and not line.endswith(b"\n")


def _reason(error: csv.Error) -> str:
    """Return what the reader says, in terms of the list."""
    text = str(error)
    if "new-line" in text:
        return "a carriage return (CR) within a field that has no quotes"
    if "expected after" in text:
        return f"text behind a closing quote{_HINT}"
    return f"a quote that is not closed{_HINT}" if "unexpected end" in text else shown(text)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
