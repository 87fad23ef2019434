"""Parse lists of comma-separated or tab-separated values (RFC 4180), with or without a header.

The standard library's reader is used: other libraries read from positions of their own, so a run could not
go on in the middle of a file, and take as long as this one where text becomes Python objects.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter

from downloader.core.naming import shown
from downloader.errors import SourceError
from downloader.sources.lines import Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["CsvParser"]

_LONGEST = 1 << 20  # bytes of a line, characters of a field


class CsvParser:
    """See ``Parser``. ``where`` is the name of the list in messages.

    Without a header, columns are named by their positions: "1", "2", …
    """

    unit = "line"
    longest = _LONGEST
    comment = b""
    columns: Columns | None = None
    fixed = True

    def __init__(self, where: str, delimiter: str, *, header: bool) -> None:
        self._where = where
        self._delimiter = delimiter
        self._has_header = header
        self._present: list[str] = []
        self._picked: list[tuple[str, int]] = []
        csv.field_size_limit(_LONGEST)

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``."""
        try:
            reader = csv.reader((_text(line) for line in sample), delimiter=self._delimiter)
            first = next((row for row in reader if row), [])
        except csv.Error as error:
            raise SourceError(f"{self._where}: line 1: {error}") from None
        if self._has_header:
            self._present = [name.strip() for name in first]
        else:
            self._present = [str(position) for position in range(1, len(first) + 1)]
        return self._present

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""
        self._picked = [(name, self._present.index(name)) for name in columns.needed if self._present]

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""
        rows = 0 if self._has_header else 1
        while not rows and (part := lines.read(1)).lines:
            header = [(number, line.removeprefix(codecs.BOM_UTF8)) for number, line in part.lines]
            rows = len(self._rows(header, lambda: lines.read(1).lines)[0])

    def table(self, lines: Numbered, following: Callable[[], bytes], more: Callable[[], Numbered]) -> Table:
        """See ``Parser``."""
        numbers, rows = self._rows(lines, more)
        width = len(self._present)
        faults: dict[int, str] = {}
        if not set(map(len, rows)) <= {width}:
            for index, row in enumerate(rows):
                if len(row) != width:
                    faults[index] = f"{len(row)} fields, and the {self._first} has {width}"
                    rows[index] = [*row, *[""] * width][:width]
        return Table(numbers, {name: list(map(itemgetter(at), rows)) for name, at in self._picked}, faults)

    @property
    def _first(self) -> str:
        return "header" if self._has_header else "first row"

    def _rows(self, lines: Numbered, more: Callable[[], Numbered]) -> tuple[Sequence[int], list[list[str]]]:
        """Return the rows that begin in ``lines``, and the number of the first line of each."""
        if not lines:
            return (), []
        texts, first = self._texts(lines), lines[0][0]
        if (rows := self._unquoted("".join(texts))) is not None:
            return range(first, first + len(rows)), rows
        try:
            # Refuses a quote that is open at the end, and also what is only unusual.
            reader = csv.reader(texts, delimiter=self._delimiter, strict=True)
            rows = list(reader)
            if len(rows) == reader.line_num and all(rows):
                return range(first, first + len(rows)), rows
        except csv.Error:
            pass
        return self._rows_of_lines(texts, first, more)

    def _unquoted(self, text: str) -> list[list[str]] | None:
        """Return the rows of ``text``, one a line, if it has no quotes and no empty line, else None.

        Takes half the time of the library's reader.
        """
        if '"' in text:
            return None
        text = text.replace("\r\n", "\n").removesuffix("\n")
        if "\r" in text or "\n\n" in text or not text or text[0] == "\n" or text[-1] == "\n":
            return None
        return [line.split(self._delimiter) for line in text.split("\n")]

    def _rows_of_lines(
        self, texts: list[str], first: int, more: Callable[[], Numbered]
    ) -> tuple[list[int], list[list[str]]]:
        """Return the rows where some have several lines, or none; the last may need ``more`` lines."""
        numbers: list[int] = []
        rows: list[list[str]] = []
        cut = False

        def rest() -> Iterator[str]:
            nonlocal cut
            while got := more():
                yield self._texts(got)[0]
            cut = True

        reader = csv.reader(chain(texts, rest()), delimiter=self._delimiter)
        at = 0
        try:
            while at < len(texts):
                row = next(reader)
                if cut:
                    raise self._broken(first + at, "the list ends before a quote is closed")
                if row:
                    numbers.append(first + at)
                    rows.append(row)
                at = reader.line_num
        except csv.Error as error:
            raise self._broken(first + at, str(error)) from None
        return numbers, rows

    def _broken(self, number: int, why: str) -> SourceError:
        hint = "; is a quote not closed?" if "larger than field limit" in why else ""
        return SourceError(f"{self._where}: the row that begins in line {number}: {shown(why)}{hint}")

    def _texts(self, lines: Numbered) -> list[str]:
        found = [line for _, line in lines]
        if sum(map(len, found)) >= _LONGEST:
            for number, line in lines:
                if len(line) >= _LONGEST and not line.endswith(b"\n"):
                    raise SourceError(f"{self._where}: line {number} is longer than {_LONGEST >> 20} MiB")
        try:
            return list(map(bytes.decode, found))
        except UnicodeDecodeError:
            return list(map(_text, found))


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
