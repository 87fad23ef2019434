"""Read the lines of a list as a stream: a file, plain, .gz or .zst, or standard input.

A ``Place`` is a byte offset with the CRC-32 of everything before it. On resume, this detects a list that
was changed before that offset, and accepts one that has only grown.

A last line without a newline may be the beginning of a line that a program is writing. It is returned
alone and last, and its place records where it began. If it has grown by the next run, the whole line is
read again.

A line that is too long is returned, or passed over, as soon as that is known: what follows in it makes no
other line of it. If it has no newline yet, its place is in its middle, as no other place is, and reading
goes on behind its end, wherever that will be.

At the end, a file must still have what was read of it: it may have grown meanwhile, but a list that is cut
or written anew while it is read does not end where it was cut.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import stat
import sys
from collections.abc import Callable
from time import monotonic
from typing import BinaryIO, NamedTuple, cast

import msgspec

from downloader.core.checksum import crc32
from downloader.errors import SourceError
from downloader.process.long_work import give_way
from downloader.sources.compression import (
    BUFFER,
    READ_ERRORS,
    BinaryStream,
    FromStart,
    open_stream,
    stream_of,
)
from downloader.sources.stdin import Pipe

__all__ = ["LONGEST_LINE", "REMEDY", "TOO_LONG", "Lines", "Part", "Place", "is_cut"]

LONGEST_LINE = 64 << 10
TOO_LONG = f"longer than {LONGEST_LINE >> 10} KiB, the limit"
_BLOCK = 1 << 20
_SAMPLE = 256 << 10
_PART = 4 << 20  # bytes of lines after which a part ends, however few lines they are
_NEWLINE = 10
_AT_A_TIME = 64 << 20  # bytes of lines that are none which are passed over at a time
# Seconds of silence, or of slow input in all, after which the lines read so far are returned.
_SILENCE = 0.2
_SLOWNESS = 1.0


class Place(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A position in the decompressed list: after ``offset`` bytes and ``line`` lines, with their CRC-32.

    ``unended``: offset and CRC-32 before the last of these lines, if it had no newline. That of one that is
    too long is not needed: what follows in it later is passed over.
    """

    offset: int = 0
    line: int = 0
    crc: int = 0
    unended: tuple[int, int] | None = None

    def behind(self, data: bytes, lines: int) -> Place:
        """Return the place after ``data``, which follows this place and has ``lines`` lines."""
        return Place(self.offset + len(data), self.line + lines, crc32(data, self.crc))


class Part(NamedTuple):
    """Lines with their numbers, and the places before and after them.

    Only the beginning of a line that is too long for a URL is included.
    """

    lines: list[tuple[int, bytes]]
    start: Place
    end: Place


def is_cut(line: bytes, longest: int = LONGEST_LINE) -> bool:
    """Return whether ``line``, as ``Lines`` returns it, is only the beginning of one that is too long."""
    return len(line) >= longest and line[-1] != _NEWLINE


class _Tail(NamedTuple):
    """A last line without a newline, as far as it has been read.

    ``before`` is the place before it, ``given`` the part that was returned as a line.
    """

    before: Place
    text: bytes
    given: bytes


class Lines:
    """The lines of ``source`` (``-`` is standard input); ``shown`` is its name in messages.

    Only the first ``longest`` bytes of a line are returned. ``comment``: how a line begins that is none,
    b"" if every line is one. ``cr_ends``: CR alone ends a line of a file, too. ``row``: a pattern of a
    line end and the beginning of a line that may have a row, None if each may be a part of one. The
    constructor and each method raise SourceError if it cannot be read.
    """

    def __init__(
        self,
        source: str,
        shown: str,
        *,
        longest: int = LONGEST_LINE,
        comment: bytes = b"#",
        cr_ends: bool = False,
        row: re.Pattern[bytes] | None = None,
    ) -> None:
        self._source = source
        self._row = row
        self._shown = shown
        self._longest = longest
        self._comment = comment
        self._cr_ends = cr_ends
        self._size = 0
        self._read_lines = 0  # for messages; ``_at`` advances by whole parts
        self._at = Place()
        self._is_within = False  # a line that is too long, and of which ``_at`` is not the end
        self._tail: _Tail | None = None
        self._reread: _Tail | None = None  # a line that was read and may be requested again
        self._broken: SourceError | None = None
        self._fd = -1  # of a regular file
        self._state = (
            0,
            0,
        )  # size and time of its last change, when its content was last known to be whole
        try:
            self._stream = self._open(source)
        except OSError as error:
            raise SourceError(f"{shown}: {error.strerror}") from error

    def _open(self, source: str) -> BinaryStream | Pipe:
        if source == "-":
            return Pipe(sys.stdin.fileno())
        file = open(source, "rb", BUFFER)  # noqa: SIM115
        try:
            stream, self._size = stream_of(file, source, self._shown, cr_ends=self._cr_ends)
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode):
                self._fd, self._state = file.fileno(), (found.st_size, found.st_mtime_ns)
        except BaseException:
            file.close()
            raise
        return stream

    def _open_again(self) -> tuple[BinaryStream, int]:
        return open_stream(self._source, self._shown, cr_ends=self._cr_ends)

    def close(self) -> None:
        """Close the file."""
        if not isinstance(self._stream, Pipe):
            self._stream.close()

    @property
    def offset(self) -> int:
        """Number of bytes read."""
        return self._at.offset

    @property
    def at(self) -> Place:
        """The place after the lines that were returned last."""
        return self._at

    @property
    def position(self) -> float:
        """Position as a fraction of the list, 0 to 1; -1 if unknown."""
        return min(self._at.offset / self._size, 1.0) if self._size else -1.0

    def advance(self, to: Place, end: Place | None = None) -> None:
        """Skip to ``to`` without returning lines. ``end``: the list is known to extend to this place.

        Raises SourceError if the list up to there is not what it was.
        """
        if to == self._at:
            return
        if to.unended is not None:
            self.advance(Place(to.unended[0], to.line - 1, to.unended[1]), to)
            given = self._meet(to)
            self._tail, self._at = _Tail(self._at, self._line_so_far(), given), to
            return
        if to.offset < self._at.offset:
            self._go_back(to)
        if to.offset > self._at.offset:
            self._skip(to, end or to)
        self._at = Place(self._at.offset, to.line, self._at.crc)
        self._read_lines = to.line
        self._check(to)

    def _skip(self, to: Place, end: Place) -> None:
        block, at = b"", self._at
        if self._tail is not None:
            block = self._tail.text[at.offset - self._tail.before.offset :][: to.offset - at.offset]
            self._tail, at = None, at.behind(block, block.count(b"\n"))
        while at.offset < to.offset:
            last = block[-1:]
            block = self._guarded(self._stream.read, min(to.offset - at.offset, _BLOCK))
            if not block:
                raise self._shorter(at.line + (last not in (b"", b"\n")), end)
            at = at.behind(block, block.count(b"\n"))
            give_way()  # a long list takes a while; heartbeats must continue
        self._at, self._is_within = at, not block.endswith(b"\n")

    def again(self, start: Place, end: Place) -> Part:
        """Return the lines from ``start`` to ``end`` as they were read before.

        If the last line had no newline then and has grown since, the whole line is returned, and the end of
        the result is the place after it. Raises SourceError if the list is not what it was.
        """
        self.advance(start, end)
        if end.unended is None:
            return Part(self._up_to(end), start, end)
        lines = self._up_to(Place(end.unended[0], end.line - 1, end.unended[1]))
        self._meet(end)
        self._tail = self._reread = _Tail(self._at, self._line_so_far(), b"")
        part = self.read(1)
        return Part(lines + part.lines, start, part.end)

    def _up_to(self, end: Place) -> list[tuple[int, bytes]]:
        """Return the lines from here to ``end``."""
        lines: list[tuple[int, bytes]] = []
        while (before := self._at).line < end.line:
            self._pass_over(end.offset)
            if self._at.line < end.line:
                lines += self._read(end.line - self._at.line, end.offset).lines
            if self._at == before:
                break
        self._check(end)
        return lines

    def sample(self, *, whole: bool = False) -> list[bytes]:
        """Return the first lines of the list, which are not taken; of a pipe one line at least.

        ``whole``: as many lines of a pipe as of a file. What is before an error is enough: it is raised
        when that place is read. Raises SourceError if there is nothing before it.
        """
        read: list[bytes] = []
        try:
            if isinstance(self._stream, Pipe):
                read.append(self._stream.sample(_SAMPLE if whole else self._longest, whole=whole))
            else:
                with contextlib.closing(self._open_again()[0]) as stream:
                    read.append(stream.readline(self._longest))
                    room = _SAMPLE - len(read[0])
                    while room > 0 and (line := stream.readline(room)):
                        read.append(line)
                        room -= len(line)
        except READ_ERRORS as error:
            if not read:
                raise self._unreadable(error) from error
        text = b"".join(read)
        # The last line may go on, or have no end.
        *lines, last = text.removeprefix(codecs.BOM_UTF8).split(b"\n")
        return [*(line + b"\n" for line in lines if line), *([last] if last else [])]

    @property
    def searchable(self) -> bool:
        """Whether the whole list can be searched before it is read, unlike a pipe."""
        return not isinstance(self._stream, Pipe)

    def have(self, pattern: bytes, accept: Callable[[bytes], bool]) -> bool:
        """Return whether a line that ``pattern`` is found in is one to ``accept``, or may be.

        Pipes and damaged data are not searched, nor what is longer than a line may be.
        """
        if not self.searchable:
            return True
        search = re.compile(pattern).search
        held = b""
        try:
            with contextlib.closing(self._open_again()[0]) as stream:
                while block := stream.read(_BLOCK):
                    text, end, rest = (held + block).rpartition(b"\n")
                    held = rest[: self._longest]
                    if end and search(text) and any(map(accept, filter(search, text.split(b"\n")))):
                        return True
                    give_way()  # a long list takes a while; heartbeats must continue
        except READ_ERRORS:
            return True  # it is told where the list is read
        return bool(search(held) and accept(held))

    def following(self) -> bytes:
        """Return the first byte of the next line, which is awaited; b"" if there is none."""
        if self._broken is not None:
            return b""
        if self._tail is not None:
            return b"" if self._tail.given else self._tail.text[:1]
        try:
            return self._guarded(self._stream.peek, 1)[:1] if self._is_at_line() else b""
        except SourceError as error:
            self._broken = error
            return b""

    def read_on(self, most: int) -> Part:
        """Return what ``read`` returns, behind lines without a row; only these if they are very many."""
        before = self._at
        self._pass_over(before.offset + _AT_A_TIME)
        if self._at.offset - before.offset >= _AT_A_TIME // 2:
            return Part([], before, self._at)
        return self.read(most)

    def _pass_over(self, end: int) -> None:
        """Go on behind the lines that have no row, as far as they end before ``end``; not of a pipe.

        The first line of a list may say that it is none.
        """
        stream, at = self._stream, self._at
        if self._row is None or self._tail is not None or self._broken is not None or not at.line:
            return
        if self._is_within:  # what follows is no line
            return
        while not isinstance(stream, Pipe):
            try:
                held = self._guarded(stream.peek, 1)[: end - at.offset]
            except SourceError as error:
                self._broken = error  # what precedes it is read
                break
            size = len(held) - len(held.lstrip(b"\n"))  # quicker than the pattern
            if not size:
                match = self._row.search(b"\n" + held)
                size = match.start() if match else held.rfind(b"\n") + 1
            if not size:
                break
            block = stream.read(size)
            at = at.behind(block, block.count(b"\n"))
            give_way()  # heartbeats must continue
        self._at, self._read_lines = at, at.line

    def read(self, most: int) -> Part:
        """Return at most ``most`` lines; none at the end.

        It returns fewer at the end, if they are long, and if a pipe has no more for now.
        """
        return self._read(most, sys.maxsize)

    def _read(self, most: int, end: int) -> Part:
        """Do the same; of a line that goes on there, read nothing behind the offset ``end``."""
        if self._broken is not None:
            raise self._broken
        lines, start, _ = part = self._line_begun()
        if self._tail is not None or self._is_within:
            return part
        number, offset, crc = self._at.line, self._at.offset, self._at.crc
        give_by = 0.0
        while len(lines) < most and offset - start.offset < _PART and not self._is_within:
            if lines and self._pauses(give_by):
                break
            try:
                if text := self._buffered(most - len(lines), _PART - (offset - start.offset), end - offset):
                    lines += enumerate(self._split(text), number + 1)
                    number = self._read_lines = lines[-1][0]
                    crc, offset = crc32(text, crc), offset + len(text)
                    continue
                line = self._guarded(self._stream.readline, self._longest)
                if not line:
                    self._check_whole(offset, crc)
                    break
                self._read_lines = number + 1
                give_by = give_by or monotonic() + _SLOWNESS
                after, size = crc32(line, crc), len(line)
                if line[-1] != _NEWLINE:
                    if size < self._longest:
                        # The end of the list, for now.
                        self._check_whole(offset + size, after)
                        self._at = Place(offset, number, crc)
                        self._tail = _Tail(self._at, line, b"")
                        return Part(lines, start, self._at) if lines else self._end_of_tail(self._tail)
                    after, size = self._read_over(after, size, end - offset)
            except SourceError as error:
                # Return the lines read so far; the next call raises the error.
                self._broken = error
                if not lines:
                    raise
                break
            number += 1
            lines.append((number, line))
            crc, offset = after, offset + size
        self._at = Place(offset, number, crc)
        return Part(lines, start, self._at)

    def _buffered(self, most: int, room: int, rest: int) -> bytes:
        """Return at most ``most`` whole lines that are in the buffer of a file; b"" if there is none.

        The line in which ``room`` bytes are full is the last one, wherever the buffer began. Only those
        count that are within ``rest`` bytes.
        """
        stream = self._stream
        if isinstance(stream, Pipe):
            return b""
        held = self._guarded(stream.peek, 1)[:rest]
        end = len(held) - len(held.split(b"\n", most)[-1])
        return stream.read(held.find(b"\n", room - 1) + 1 if end > room else end)

    def _split(self, text: bytes) -> list[bytes]:
        """Return the lines of ``text``, as long as ``readline`` would return them."""
        longest = self._longest
        lines = [line + b"\n" for line in text.split(b"\n")]
        del lines[-1]
        if max(map(len, lines)) > longest:
            return [line[:longest] for line in lines]
        return lines

    def _end_of_tail(self, tail: _Tail) -> Part:
        """Return the line that ``tail`` has become; no lines if it was returned before.

        If it has a newline now, it is an ordinary line, and ``_tail`` is reset.
        """
        before, text = tail.before, self._more(tail.text)
        number, self._read_lines = before.line + 1, before.line + 1
        nothing = Part([], self._at, self._at)
        if text.endswith(b"\n") or len(text) >= self._longest:
            self._tail, self._at = None, before.behind(text, 1)
            if text[-1] != _NEWLINE:
                crc, size = self._read_over(self._at.crc, 0)
                self._at = Place(self._at.offset + size, number, crc)
            if tail.given and text.strip() == tail.given.strip():
                return Part([], self._at, self._at)
            return Part([(number, text)], before, self._at)
        self._check_whole(before.offset + len(text), crc32(text, before.crc))
        self._tail = _Tail(before, text, text)
        stripped = text.strip()
        if text == tail.given or not stripped or (self._comment and stripped.startswith(self._comment)):
            # Nothing new, or a comment, which is not consumed yet.
            return nothing
        end = before.behind(text, 1)
        self._at = Place(end.offset, end.line, end.crc, (before.offset, before.crc))
        return Part([(number, text)], before, self._at)

    def _check_whole(self, offset: int, crc: int) -> None:
        """Raise SourceError unless the file, read to its end, still begins with these ``offset`` bytes.

        ``crc``: their CRC-32. They are read again only if the file was changed, by growing or otherwise.
        """
        if self._fd < 0:
            return
        found = os.fstat(self._fd)
        state = (found.st_size, found.st_mtime_ns)
        if state == self._state:
            return
        if found.st_size < self._state[0] or not self._begins_with(offset, crc):
            raise SourceError(
                f"{self._shown} was cut or written anew while it was read (line {self._read_lines}); "
                "when the whole list is there again, run the same command again"
            )
        self._state = state

    def _begins_with(self, offset: int, crc: int) -> bool:
        file = cast(BinaryIO, io.BufferedReader(FromStart(self._fd), BUFFER))
        stream, _ = stream_of(file, self._source, self._shown, cr_ends=self._cr_ends)
        found = 0
        while offset > 0 and (block := self._guarded(stream.read, min(offset, _BLOCK))):
            found, offset = crc32(block, found), offset - len(block)
            give_way()  # a long list takes a while; heartbeats must continue
        return not offset and found == crc

    def _meet(self, end: Place) -> bytes:
        """Return the line from here to ``end``, which had no newline.

        Raises SourceError if it is not there any more.
        """
        size = end.offset - self._at.offset
        if self._tail is None:
            self._tail = _Tail(self._at, b"", b"")
        self._tail = self._tail._replace(text=self._more(self._tail.text))
        given = self._tail.text[:size]
        if len(given) < size:
            raise self._shorter(self._at.line + bool(given), end)
        if crc32(given, self._at.crc) != end.crc:
            raise self._changed(end)
        return given

    def _line_so_far(self) -> bytes:
        return self._tail.text if self._tail is not None else b""

    def _go_back(self, to: Place) -> None:
        """Go back to the line that was read last, if it begins at ``to``.

        Else the list has changed: a header that is longer than it was ends behind ``to``.
        """
        tail = self._reread
        if tail is None or (tail.before.offset, tail.before.offset + len(tail.text)) != (
            to.offset,
            self._at.offset,
        ):
            raise self._changed(to)
        self._at, self._tail, self._is_within = tail.before, tail, False

    def _more(self, text: bytes) -> bytes:
        """Return ``text``, which may have no newline yet, with the data that has followed since."""
        while not text.endswith(b"\n") and len(text) < self._longest:
            more = self._guarded(self._stream.readline, self._longest - len(text))
            if not more:
                break
            text += more
        return text

    def _line_begun(self) -> Part:
        """Return the line that has begun before, as far as it is there now, if it is to be returned."""
        if not self._is_at_line():
            self._check_whole(self._at.offset, self._at.crc)
        elif self._tail is not None:
            return self._end_of_tail(self._tail)
        return Part([], self._at, self._at)

    def _is_at_line(self) -> bool:
        """Return whether a line begins here, once what there is of one that is too long is passed over."""
        if self._is_within:
            crc, size = self._read_over(self._at.crc, 0)
            self._at = Place(self._at.offset + size, self._at.line, crc)
        return not self._is_within

    def _read_over(self, crc: int, size: int, most: int = sys.maxsize) -> tuple[int, int]:
        """Skip the rest of a line that is too long for a URL; return the updated CRC-32 and size.

        Go on while its size is less than ``most``, and note whether it has no newline yet.
        """
        self._is_within = True
        while size < most and (
            rest := self._guarded(self._stream.readline, min(self._longest, most - size))
        ):
            crc, size = crc32(rest, crc), size + len(rest)
            if rest[-1] == _NEWLINE:
                self._is_within = False
                break
            give_way()
        return crc, size

    def _pauses(self, give_by: float) -> bool:
        stream = self._stream
        if not isinstance(stream, Pipe):
            return False
        return monotonic() > give_by or stream.silent(self._longest, _SILENCE)

    def _guarded(self, read: object, size: int) -> bytes:
        try:
            return cast("bytes", read(size))  # type: ignore[operator]
        except READ_ERRORS as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> SourceError:
        why = " ".join(str(error).split()).rstrip(".")
        return SourceError(
            f"{self._shown} cannot be read after line {self._read_lines}: {why}; write it again, and run "
            "the same command"
        )

    def _check(self, expected: Place) -> None:
        if self._at.line < expected.line:
            raise self._shorter(self._at.line + (self._tail is not None), expected)
        if (self._at.offset, self._at.crc) != (expected.offset, expected.crc):
            raise self._changed(expected)

    def _changed(self, expected: Place) -> SourceError:
        return SourceError(
            f"{self._shown} has changed before line {expected.line + 1}, or is another list than this job "
            f"began with; {REMEDY}"
        )

    def _shorter(self, lines: int, expected: Place) -> SourceError:
        if lines >= expected.line:
            return self._changed(expected)
        return SourceError(
            f"{self._shown} is shorter than it was: this job has read {expected.line:,} lines of it, "
            f"and now it has {lines:,}; {REMEDY}"
        )


REMEDY = (
    "give the same list, or another -o for this one, or --relist to read it from its start and keep what "
    "is stored (not with shards), or --restart"
)
