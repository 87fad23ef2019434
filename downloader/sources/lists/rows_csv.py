"""Parse lists of comma-separated or tab-separated values (RFC 4180), with or without a header.

The standard library's reader is used: other libraries read from positions of their own, so a run could not
go on in the middle of a file, and take as long as this one where text becomes Python objects.

A row that cannot be read is a fault of that row. Many lists have quotes that RFC 4180 does not know: they
are text, as in most tab-separated values, or a backslash stands before them (an ``escapechar``). Such a
quote joins lines that are rows of their own, until another one ends the field. So a row of several lines
counts only if it cannot be several rows: of its lines one at most looks like a row, by its URL, which is
then the row's; it has as many fields as the header; and it does not end earlier where backslashes escape.
Else it is a fault of its first line, and the next row begins in the second.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from downloader.core.naming import shown
from downloader.errors import ConfigError
from downloader.process.long_work import give_way
from downloader.sources.lines import Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import NO_FIELDS
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["CsvParser"]

# The first line with which Excel and its like name the delimiter of the others.
_SEPARATOR = re.compile(r'"?sep=([,;|\t])"?\r?\n').fullmatch
_DELIMITERS: Final = {";": "a semicolon", "\t": "a tab", "|": "a vertical bar", ",": "a comma"}
_FORMATS: Final = {",": "csv", "\t": "tsv"}
_COMMAS = (
    'python3 -c \'import csv, sys; sys.stdin.reconfigure(encoding="{encoding}"); {out}'
    'csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter="{delimiter}"))\''
)
_OUT = 'sys.stdout.reconfigure(encoding="utf-8"); '  # of what was not UTF-8
_LONGEST = 1 << 20  # bytes of a line
_LONGEST_FIELD = 16 << 20  # characters
_GIVE_UP = 64 << 20  # characters of a row after which its quote counts as not closed
_MOST_ROWS = 10_000  # that one read leads to, of lines that were read for rows which end earlier
_TRIES = 100  # lines of a list without a header, to find one that can be read
_HINT = "; where quotes are text, --quote none reads them"
_LINES = "; where they enclose line breaks, write the list as .jsonl or .parquet"
_ESCAPES = (
    '; where \\" stands for a quote, convert the list with Python: '
    'csv.writer(new).writerows(csv.reader(old, doublequote=False, escapechar="\\\\"))'
)
_A_ROW = "which looks like a row"
_HALF = re.compile("[\ud800-\udfff]").search  # of a byte that is not UTF-8
_NOT_UTF8 = "not valid UTF-8"
_REMEDIES = (_HINT, _LINES, _ESCAPES)
_ESCAPED = '\\"'
_SCHEMES = ("http://", "https://")
_NO_NAMES: Final = frozenset({"NA", "N/A", "NULL", "null", "NaN", "nan", "None"})

More = Callable[[], Numbered]


class CsvParser:
    """See ``Parser``. ``where`` is the name of the list in messages, ``convert`` makes a command for it.
    ``encoding`` returns that of the list, whose beginning it gets.

    Without a header, columns are named by their positions: "1", "2", … ``quoted``: quotes enclose fields;
    otherwise they are text.
    """

    unit = "line"
    longest = _LONGEST
    comment = b""
    row: re.Pattern[bytes] | None = None
    cr_ends = False
    columns: Columns | None = None
    fixed = True
    fields = NO_FIELDS
    cause = ""

    def __init__(
        self,
        where: str,
        delimiter: str,
        *,
        header: bool,
        quoted: bool,
        convert: Callable[[str], str],
        encoding: Callable[[bytes], str] = lambda beginning: "utf-8-sig",
    ) -> None:
        self._where = where
        self._find_encoding = encoding
        self._sample = b""
        self._convert = convert
        self._delimiter = delimiter
        self._above = 0  # how many lines precede the header
        self._has_header = header
        self._quoted = quoted
        self._present: list[str] = []
        self._picked: list[tuple[str, int]] = []
        self._url = -1  # position of the column with the URLs
        self._name = ""
        self._noted: set[str] = set()
        csv.field_size_limit(_LONGEST_FIELD)

    def close(self) -> None:
        """See ``Parser``."""

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``. Raises ConfigError if the header cannot be read."""
        self._sample = b"".join(sample)
        texts = list(map(_text, sample))
        if found := _SEPARATOR(texts[0]):
            self._delimiter, self._above = found[1], 1
            del texts[0]
        first = self._first_row(texts)
        if self._has_header and _HALF("".join(first)):
            raise ConfigError(
                f"{self._where}: the header, line {self._above + 1}, is {_NOT_UTF8}{self._encoding_hint}"
            )
        if self._has_header:
            self._present = [name.strip() for name in first]
            self.cause = self._cause(texts[0]) if texts else ""
        else:
            self._present = [str(position) for position in range(1, len(first) + 1)]
        return self._present

    def _cause(self, header: str) -> str:
        """Return why the header may not have the columns that it should, "" if that is not known."""
        if any(map(_is_url, self._present)):
            return "; that is no header: --no-header names columns 1, 2, …"
        return self._delimiter_hint(header) if len(self._present) == 1 else ""

    def _delimiter_hint(self, line: str) -> str:
        """Return what to do where ``line``, which is no row, is one with another delimiter; "" if not."""
        counts = {other: _width(line, other) for other in _DELIMITERS if other != self._delimiter}
        other = max(counts, key=lambda each: counts[each])
        if counts[other] < 2:
            return ""
        if other in _FORMATS:
            remedy = f"add --list-format {_FORMATS[other]}"
        else:
            encoding = self._encoding()
            out = "" if encoding.startswith("utf-8") else _OUT
            command = _COMMAS.format(encoding=encoding, out=out, delimiter=other)
            remedy = f"convert it with: {self._convert(command)}"
        return f"; its delimiter seems to be {_DELIMITERS[other]}; {remedy}"

    def _encoding(self) -> str:
        return self._find_encoding(self._sample)

    def _first_row(self, sample: list[str]) -> list[str]:
        problem = ""
        for start in range(min(len(sample), _TRIES)):
            lines = sample[start:]
            reader = self._reader(lines)
            try:
                row: list[str] = next(reader, [])
                for inner in range(1, reader.line_num):
                    if any(map(_is_url, lines[inner].split(self._delimiter))):
                        number = self._above + start + 1 + inner
                        raise csv.Error(f"a quote that goes on into line {number}, {_A_ROW}")
                if row:
                    return row
            except csv.Error as error:
                problem = problem or _reason(error)
                if self._has_header:
                    why = self._remedied(problem, lines[0])
                    raise ConfigError(
                        f"{self._where}: the header, line {self._above + start + 1}, has {why}"
                    ) from None
        if problem:
            why = self._remedied(problem, sample[0])
            raise ConfigError(f"{self._where}: none of its first lines can be read: {why}")
        return []

    def _remedied(self, problem: str, line: str) -> str:
        """Return ``problem``, which ``line`` has, with what to do about it."""
        hint = self._delimiter_hint(line) if self._delimiter not in line else ""
        return problem.partition(";")[0] + hint if hint else problem

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""
        first: dict[str, int] = {}
        for at, name in enumerate(self._present):
            first.setdefault(name, at)
        self._picked = [(name, first[name]) for name in columns.needed if self._present]
        self._url = first.get(columns.url, -1)
        self._name = columns.name

    def kinds(self, sample: Callable[[], Sequence[bytes]], columns: Columns) -> dict[str, str]:
        """See ``Parser``."""
        return dict.fromkeys(columns.keep or (), "text")

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""
        if self._above:
            lines.read(self._above)
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
                    faults.setdefault(index, self._wrong_width(row))
                    rows[index] = [*row, *[""] * width][:width]
        columns = {name: list(map(itemgetter(at), rows)) for name, at in self._picked}
        return Table(numbers, columns, faults, note=self._note(numbers, columns, faults))

    @property
    def _first(self) -> str:
        return "header" if self._has_header else "first row"

    def _note(
        self, numbers: Sequence[int], columns: Mapping[str, Sequence[str]], faults: Mapping[int, str]
    ) -> str:
        """Return what to say, once: about quotes, an encoding, names that may be none."""
        found: dict[str, str] = {}
        for index, why in faults.items():
            what = "quotes" if why.endswith(_REMEDIES) else "encoding" if why.endswith(_NOT_UTF8) else ""
            if what:
                hint = self._encoding_hint if what == "encoding" else ""
                found.setdefault(what, f"line {numbers[index]}: {why}{hint}")
        names = columns.get(self._name, ())
        if "names" not in self._noted and not _NO_NAMES.isdisjoint(names):
            index = next(at for at, name in enumerate(names) if name in _NO_NAMES)
            found["names"] = (
                f"line {numbers[index]}: {names[index]} is taken for a name; where it stands for none, "
                "leave it empty, and the URL gives the name"
            )
        notes = [note for what, note in found.items() if what not in self._noted]
        self._noted.update(found)
        return f"{self._where}: {'; '.join(notes)}" if notes else ""

    @property
    def _encoding_hint(self) -> str:
        command = self._convert("iconv -f WINDOWS-1252 -t UTF-8")
        return f", and a list must be; if it is in Windows-1252, convert it with: {command}"

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
        source = _RowLines(lines, more, self._url_of)
        reader = self._reader(source)
        while source.begin_row():
            row: list[str] = []
            why = ""
            try:
                row = next(reader)
                if source.has_several and (why := self._doubt(row, source)):
                    source.go_back()
                elif source.invalid:
                    why = source.not_utf8()
            except _Refused as refused:
                why = str(refused)
                source.go_back()
            except csv.Error as error:
                why = _fault(error, source)
            if why:
                reader = self._reader(source)
                faults[len(rows)] = why
            if row or why:
                numbers.append(source.number)
                rows.append(row)
        return numbers, rows, faults

    def _doubt(self, row: list[str], source: _RowLines) -> str:
        """Return why ``row``, which has several lines, may be several rows; "" if it cannot be."""
        width, delimiter = len(self._present), self._delimiter
        if len(row) != width:
            return f"{self._wrong_width(row)}{source.last}"
        if source.urls:
            ((_, url),) = source.urls
            # A URL in quotes may have delimiters; one with a line break fails by itself.
            if re.split(rf"[{delimiter}\r\n]", row[self._url].strip())[0] != url:
                return source.goes_on()
        if self._url >= 0 and source.has_escapes:
            reader = csv.reader(source.texts, delimiter=delimiter, doublequote=False, escapechar="\\")
            other: list[str] = next(reader, [])
            ends_earlier = reader.line_num < len(source.texts)
            if ends_earlier and len(other) == width and _is_url(other[self._url]):
                return f"a quote behind a backslash{source.last}{_ESCAPES}"
        return ""

    def _wrong_width(self, row: list[str]) -> str:
        return f"{len(row)} fields, and the {self._first} has {len(self._present)}"

    def _url_of(self, text: str, is_first: bool) -> str:
        """Return the URL of the row that the line ``text`` would be, were quotes only text; "" if none.

        Rows may have too many fields or too few. Prose in a field may have URLs as well, alone in a line or
        with blanks behind commas. The first line of a row ends in a quoted field, so it may be either.
        """
        if self._url < 0 or "://" not in text:
            return ""
        fields = text.split(self._delimiter)
        is_whole = len(fields) >= len(self._present)
        if len(fields) <= self._url or not (is_first or is_whole or self._is_part_of_row(fields)):
            return ""
        field = fields[self._url].strip(' "\r\n')
        return field if _is_url(field) else ""

    def _is_part_of_row(self, fields: Sequence[str]) -> bool:
        around = fields[self._url : self._url + 2]
        return len(fields) > 1 and not any(field.startswith(" ") for field in around)

    def _texts(self, lines: Numbered) -> list[str] | None:
        """Return ``lines`` as text, None if one is too long or no UTF-8."""
        found = [line for _, line in lines]
        if sum(map(len, found)) >= _LONGEST and any(map(_is_cut, found)):
            return None
        try:
            return list(map(bytes.decode, found))
        except UnicodeDecodeError:
            return None


def _fault(error: csv.Error, source: _RowLines) -> str:
    """Return why a row cannot be read, and set ``source`` behind it."""
    why = str(error)
    if "field limit" in why:
        if source.skip_quotes():
            return f"a field is longer than {_LONGEST_FIELD >> 20} MiB"
        why = "unexpected end"
    hint = _ESCAPES if source.has_escapes else _HINT
    last = source.last
    if "unexpected end" in why:
        source.go_back()
        return f"a quote that is not closed{hint}"
    if "expected after" in why:
        source.go_back()
        return f"text behind a closing quote{last}{hint}"
    return _reason(error)


def _width(line: str, delimiter: str) -> int:
    """Return how many fields ``line`` has with ``delimiter``, 0 if it cannot be read."""
    try:
        return len(next(csv.reader([line], delimiter=delimiter, strict=True), ()))
    except csv.Error:
        return 0


def _is_url(text: str) -> bool:
    return text.lstrip(' "').lower().startswith(_SCHEMES)


class _Refused(Exception):
    """The row is not read any further: the reason."""


class _RowLines:
    """The lines of rows, for a reader. It raises _Refused where a row should not go on.

    ``number``: of the first line of the row; ``texts``: its lines so far. ``urls``: of those that look like
    rows, if there are several lines, the number and what ``url_of`` has returned. ``invalid``: the number
    of one that is not UTF-8, or 0.
    """

    def __init__(self, lines: Numbered, more: More, url_of: Callable[[str, bool], str]) -> None:
        self._lines = list(lines)
        self._more = more
        self._url_of = url_of
        self._start = 0
        self._next = 0
        self._rows = 0
        self.number = 0
        self.texts: list[str] = []
        self.urls: list[tuple[int, str]] = []
        self.invalid = 0

    def begin_row(self) -> bool:
        """Begin a row behind the last one; return whether there is a line for it."""
        self._start = self._next
        if self._start == len(self._lines):
            return False
        self._rows += 1
        self.number = self._lines[self._start][0]
        self.texts, self.urls, self.invalid = [], [], 0
        return True

    @property
    def has_several(self) -> bool:
        """Return whether the row has several lines so far."""
        return self._next > self._start + 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._next == len(self._lines) and not self._read_more():
            raise StopIteration
        number, line = self._lines[self._next]
        self._next += 1
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = _text(line)
            self.invalid = self.invalid or number
        if _is_cut(line):
            at = "" if number == self.number else f"line {number} of the row is "
            raise _Refused(f"{at}longer than {_LONGEST >> 20} MiB")
        if self.texts:
            self._look(text, number)
        self.texts.append(text)
        return text

    def _read_more(self) -> bool:
        """Read one more line; return whether there is one, and the row may have it.

        Where each row leaves a quote open, each leads to a further line, which is then a row of its own: a
        read would not end before the list does. The rows are counted, and not the lines, so that the same
        ones follow when they are read again.
        """
        if self._rows > _MOST_ROWS or not (got := self._more()):
            return False
        self._lines += got
        return True

    def _look(self, text: str, number: int) -> None:
        """Raise _Refused if line ``number`` of the row is the second that looks like a row."""
        if len(self.texts) == 1 and (url := self._url_of(self.texts[0], True)):
            self.urls.append((self.number, url))
        if url := self._url_of(text, False):
            self.urls.append((number, url))
            if len(self.urls) > 1:
                raise _Refused(self.goes_on())

    def goes_on(self) -> str:
        """Say that the row has a line that looks like another."""
        inner = next((number for number, _ in self.urls if number != self.number), 0)
        where = f"line {inner}, {_A_ROW}" if inner else "a line behind one that looks like a row"
        return f"a quote that goes on into {where}{_ESCAPES if self.has_escapes else _HINT + _LINES}"

    @property
    def has_escapes(self) -> bool:
        """Return whether a backslash stands before a quote in the row."""
        return any(_ESCAPED in text for text in self.texts)

    def not_utf8(self) -> str:
        """Say which line of the row is not UTF-8."""
        at = "" if self.invalid == self.number else f"line {self.invalid} of the row is "
        return f"{at}{_NOT_UTF8}"

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
                if size > _GIVE_UP or not self._read_more():
                    return False
                give_way()  # heartbeats must continue
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
    if text.endswith(_A_ROW):
        return f"{text}{_HINT}"
    if "new-line" in text:
        return "a carriage return (CR) within a field that has no quotes"
    if "expected after" in text:
        return f"text behind a closing quote{_HINT}"
    return f"a quote that is not closed{_HINT}" if "unexpected end" in text else shown(text)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
