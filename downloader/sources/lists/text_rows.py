"""Read the rows of a text file, whose format a ``Parser`` knows; see ``Rows``."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable

import msgspec

from downloader.errors import ConfigError
from downloader.sources.compression import fed
from downloader.sources.lines import Lines, Place
from downloader.sources.lists.columns import Columns, Wanted, choose
from downloader.sources.lists.rows import Chunk, Numbered, Parser

__all__ = ["TextRows"]

_encode = msgspec.msgpack.encode
_CONTROL = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f]")
# How files begin that are no text, what they are, what to do, and the suffix with which they are read.
_OTHER_FILES = {
    b"\x1f\x8b": ("gzip", "unpack it with gzip -dc", ".gz"),
    b"\x1f\x9d": ("compressed", "unpack it with gzip -dc", ""),
    b"\x28\xb5\x2f\xfd": ("zstd", "unpack it with zstd -dc", ".zst"),
    b"\xfd7zXZ\0": ("xz", "unpack it with xz -dc", ""),
    b"\x5d\0\0": ("lzma", "unpack it with xz -dc", ""),
    b"\x04\x22\x4d\x18": ("lz4", "unpack it with lz4 -dc", ""),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it with 7z e", ""),
    b"PAR1": ("Parquet", "", ".parquet"),
    b"ARROW1": ("Arrow IPC", "", ".arrow"),
    b"PK\x03\x04": ("a zip archive or a spreadsheet", "unpack it with unzip, or save it as csv", ""),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("a spreadsheet", "save it as csv", ""),
    **{b"BZh%d1AY&SY" % level: ("bzip2", "unpack it with bzip2 -dc", "") for level in range(1, 10)},
}
_TAR = slice(257, 262)  # where a tar says that it is one
_QUOTED = re.compile(rb'"[^"]*"')


class TextRows:
    """The rows of ``source`` (``-`` is standard input); positions are those of ``Lines``.

    Raises SourceError if it cannot be read, ConfigError if it is not UTF-8 or if a column is missing.
    """

    def __init__(self, source: str, shown: str, parser: Parser, wanted: Wanted) -> None:
        self.unit = parser.unit
        self._source = source
        self._shown = shown
        self._parser = parser
        self._lines = Lines(
            source,
            shown,
            longest=parser.longest,
            comment=parser.comment,
            cr_ends=parser.cr_ends,
            row=parser.row,
        )
        try:
            self.columns = parser.columns or self._choose(wanted)
            parser.select(self.columns)
            parser.skip_header(self._lines)
        except BaseException:
            self.close()
            raise

    def _choose(self, wanted: Wanted) -> Columns:
        sample = self._lines.sample()
        if not any(line.strip() for line in sample):
            return Columns(wanted.url)  # an empty file has no rows, so it lacks no column
        self._check_first(sample[0])
        if len(sample) == 1 and sample[0].lstrip(b'"').startswith(b"sep="):
            sample = self._lines.sample(whole=True)  # a pipe may have no header yet
        parser = self._parser
        present = parser.begin(sample)
        varying = not parser.fixed
        return choose(
            wanted,
            present,
            self._shown,
            varying=varying,
            fields=parser.fields,
            elsewhere=self._has_key if varying else lambda name, near: False,
            cause=parser.cause,
        )

    def _has_key(self, name: str, near: str) -> bool:
        """Return whether any line of JSON has the key ``name``, or may have it.

        A pipe cannot be searched: there it may, unless the first lines have ``near``, a similar one.
        """
        from downloader.sources.lists.rows_jsonl import has_key

        if not self._lines.searchable:
            return not near
        keys = {key for each in (name, name.rpartition(".")[2]) for key in (_json(each), _json(each, True))}
        pattern = b"(?:" + b"|".join(map(re.escape, keys)) + rb")\s*:"
        return self._lines.have(pattern, lambda line: has_key(line, name))

    def kinds(self) -> dict[str, str]:
        """See ``Rows``."""
        return self._parser.kinds(lambda: self._lines.sample(whole=True), self.columns)

    @property
    def fraction(self) -> float:
        """See ``Rows``."""
        return self._lines.position

    def close(self) -> None:
        """See ``Rows``."""
        self._lines.close()
        self._parser.close()

    def advance(self, to: bytes) -> None:
        """See ``Rows``."""
        if to:
            self._lines.advance(_place(to))

    def read(self, most: int) -> Chunk:
        """See ``Rows``."""
        part = self._lines.read_on(most)
        return self._chunk(part.lines, part.start, self._lines.following)

    def is_behind(self, position: bytes) -> bool:
        """See ``Rows``."""
        return _place(position).offset < self._lines.offset

    def again(self, start: bytes, end: bytes) -> Chunk:
        """See ``Rows``."""
        part = self._lines.again(_place(start), _place(end))
        return self._chunk(part.lines, part.start, lambda: b"")

    def _chunk(self, lines: Numbered, start: Place, following: Callable[[], bytes]) -> Chunk:
        taken = bool(lines) or self._lines.at != start
        if lines and lines[0][0] == 1:
            self._check_first(lines[0][1])
            lines[0] = (1, lines[0][1].removeprefix(codecs.BOM_UTF8))
        table = self._parser.table(lines, following, self._more)
        end = self._lines.at
        size = end.offset - start.offset
        return Chunk(table, _encode(start), _encode(end), taken, end.unended is not None, size)

    def _more(self) -> Numbered:
        return self._lines.read(1).lines

    def check(self) -> None:
        """Check the beginning of the file. Raises ConfigError if it is not a text of lines in UTF-8."""
        if sample := self._lines.sample():
            self._check_first(sample[0])

    def _check_first(self, line: bytes) -> None:
        """Raise ConfigError if the list that begins with ``line`` is no text of lines in UTF-8."""
        for magic, (kind, remedy, suffix) in _OTHER_FILES.items():
            if line.startswith(magic):
                named = (
                    f"name it {suffix}"
                    if self._source != "-"
                    else f"store it in a file {suffix}, and name that"
                )
                what = " or ".join(filter(None, (remedy, named if suffix else "")))
                raise ConfigError(f"{self._shown} is {kind}, and a list of this format is text; {what}")
        if line[_TAR] == b"ustar" and b"\0" in line:
            raise ConfigError(f"{self._shown} is a tar archive, and a list is text; unpack it with tar -xf")
        if form := _other_form(line):
            raise ConfigError(
                f"{self._shown} looks like {form}, and a list must be UTF-8; convert it with: "
                f"{fed(f'iconv -f {form} -t UTF-8', self._source, self._shown)}"
            )
        if _ends_in_cr(line):
            command = fed(r"tr '\r' '\n'", self._source, self._shown)
            raise ConfigError(
                f"{self._shown} has CR alone as the end of its lines, and a list must have LF or CRLF; "
                f"convert it with: {command}"
            )


def _place(position: bytes) -> Place:
    return msgspec.msgpack.decode(position, type=Place)


def _other_form(line: bytes) -> str:
    """Return the encoding, as detected, of a list that begins with ``line``; "" for UTF-8."""
    if line.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    zeros = [not byte for byte in line[:4]]
    if zeros == [False, True, False, True]:
        return "UTF-16LE"
    return "UTF-16BE" if zeros == [True, False, True, False] else ""


def _ends_in_cr(line: bytes) -> bool:
    """Return whether ``line``, the first one, is several lines that end in CR alone.

    One CR in a line that ends in LF is a fault of that line. Quoted fields may have any number, and so may
    what is no text.
    """
    if _CONTROL.search(line):
        return False
    count = _QUOTED.sub(b"", line).rstrip(b"\r\n").count(b"\r")
    return count > line.endswith(b"\n")


def _json(name: str, is_ascii: bool = False) -> bytes:
    return json.dumps(name, ensure_ascii=is_ascii).encode("utf-8", "surrogateescape")
