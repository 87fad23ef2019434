"""Open the file of a list: plain, .gz or .zst."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import shlex
import zlib
from typing import Any, BinaryIO, Protocol, cast

from downloader.core.extras import ZSTD
from downloader.errors import SourceError
from downloader.process.long_work import give_way

__all__ = [
    "BUFFER",
    "READ_ERRORS",
    "BinaryStream",
    "FromStart",
    "encoding_of",
    "fed",
    "open_stream",
    "stream_of",
]

READ_ERRORS = (OSError, EOFError, zlib.error)
BUFFER = 256 << 10
_IN_LATIN_1_ONLY = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_LONE_CR = re.compile(rb"\r(?!\n)")


class BinaryStream(Protocol):
    """The methods of ``io.BufferedReader`` that are used here; it is generic in some versions only."""

    def peek(self, size: int, /) -> bytes: ...

    def read(self, size: int, /) -> bytes: ...

    def readline(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class _Packed(Protocol):
    def read1(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class _Raw(io.RawIOBase):
    """A decompressor as a raw stream, which returns each piece at once.

    So what precedes an error in the file is still read.
    """

    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._packed.read1(len(buffer))
        except Exception as error:
            if self._begun and isinstance(error, gzip.BadGzipFile) and "Not a gzipped" in str(error):
                raise OSError("something else follows the compressed data") from error
            # Each decompressor has errors of its own.
            raise error if isinstance(error, READ_ERRORS) else OSError(str(error)) from error
        self._begun = self._begun or bool(data)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._packed.close()
        super().close()


class _Closing:
    """A decompressor that closes its file, too."""

    def __init__(self, packed: _Packed, file: BinaryIO) -> None:
        self._packed = packed
        self._file = file
        self.read1 = packed.read1

    def close(self) -> None:
        self._packed.close()
        self._file.close()


class FromStart(io.RawIOBase):
    """The file of the descriptor ``fd`` from its beginning; where others have read it to is not changed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._fd, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _LineFeeds:
    """A stream of text whose lines end in LF: CR alone becomes LF, so places are the same."""

    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._held = b""

    def read1(self, size: int, /) -> bytes:
        data = self._held + self._packed.read1(size - 1 - len(self._held))
        self._held = b""
        if data.endswith(b"\r"):
            following = self._packed.read1(1)
            if following == b"\n":
                data += following
            else:
                self._held = following
        return _LONE_CR.sub(b"\n", data)

    def close(self) -> None:
        self._packed.close()


def open_stream(path: str, shown: str, *, cr_ends: bool = False) -> tuple[BinaryStream, int]:
    """Return the content of ``path`` as a stream, and its size; 0 where that is not known.

    ``shown`` is its name in messages. ``cr_ends``: CR alone ends a line, too, and is read as LF. Raises
    OSError, SourceError.
    """
    return stream_of(open(path, "rb", BUFFER), path, shown, cr_ends=cr_ends)


def stream_of(file: BinaryIO, path: str, shown: str, *, cr_ends: bool = False) -> tuple[BinaryStream, int]:
    """Return what ``open_stream`` returns for ``file``, which is open and is closed with the stream."""
    size = os.fstat(file.fileno()).st_size
    suffix = path.lower()[-4:]
    if suffix == ".zst":
        packed = cast(_Packed, _Closing(_zstd().open(file, "rb"), file))
    elif suffix.endswith(".gz"):
        packed = cast(_Packed, _Closing(gzip.open(file, "rb"), file))  # noqa: SIM115
    else:
        if cr_ends:
            return _buffered(_LineFeeds(cast(_Packed, file))), size
        return cast(BinaryStream, file), size
    if not size:
        kind = "zstd" if suffix == ".zst" else "gzip"
        raise SourceError(f"{shown} is empty, and so no {kind} file; write it again")
    return _buffered(_LineFeeds(packed) if cr_ends else packed), 0


def encoding_of(path: str, shown: str, beginning: bytes) -> str:
    """Return the encoding of the text in ``path`` (``-``: of its ``beginning``), for a command to read it.

    What is not UTF-8 is in Windows-1252, as spreadsheets save it, or in Latin-1, which has all bytes.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    unknown = False
    try:
        if path == "-":
            decoder.decode(beginning)
            return "utf-8-sig"
        stream, _ = open_stream(path, shown)
        try:
            while block := stream.read(BUFFER):
                unknown = unknown or _IN_LATIN_1_ONLY.search(block) is not None
                decoder.decode(block)
                give_way()  # a long list takes a while; heartbeats must continue
        finally:
            stream.close()
    except UnicodeDecodeError:
        return "latin-1" if unknown or _IN_LATIN_1_ONLY.search(beginning) else "cp1252"
    except (*READ_ERRORS, SourceError):
        pass  # it is told where the list is read
    return "utf-8-sig"


def fed(command: str, path: str, shown: str) -> str:
    """Return ``command`` of a shell with the text of the list ``path`` as its input; "-": as it is.

    ``shown``: the name of the list in messages.
    """
    if path == "-":
        return command
    suffix, name = path.lower()[-4:], shlex.quote(shown)
    if suffix == ".zst" or suffix.endswith(".gz"):
        return f"{'zstd' if suffix == '.zst' else 'gzip'} -dc {name} | {command}"
    return f"{command} < {name}"


def _buffered(packed: _Packed) -> BinaryStream:
    return cast(BinaryStream, io.BufferedReader(_Raw(packed), BUFFER))


def _zstd() -> Any:
    import importlib

    return importlib.import_module(ZSTD)
