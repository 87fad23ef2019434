"""Framing of the messages between processes: 4 bytes of length, big-endian, then the payload."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_FRAME", "FrameError", "Unpacker", "pack"]

MAX_FRAME: Final = 64 * 1024 * 1024
"""Bytes of the longest payload; more means that the stream is not one of frames."""

_HEADER: Final = 4


class FrameError(ValueError):
    """The stream is not one of frames, or ended inside one."""


def pack(payload: bytes) -> bytes:
    """One frame. Raises FrameError for a payload longer than ``MAX_FRAME``."""
    size = len(payload)
    if size > MAX_FRAME:
        raise FrameError(f"a frame of {size} bytes is longer than {MAX_FRAME}")
    return size.to_bytes(_HEADER, "big") + payload


class Unpacker:
    """Payloads out of a stream that arrives in pieces of any size.

    Linear in the bytes fed; holds one unfinished frame at most, ``MAX_FRAME`` bytes, and no more
    than has arrived. What it returns does not share memory with what it was fed.
    """

    __slots__ = ("_broken", "_buffer", "_wanted")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = _HEADER  # nothing can be done before the buffer holds so much
        self._broken: str | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The payloads that ``data`` completes, in order.

        Raises FrameError for a frame longer than ``MAX_FRAME``, as soon as its length is known;
        then and ever after: a stream out of step cannot be trusted again.
        """
        if self._broken:
            raise FrameError(self._broken)
        if not self._buffer:
            frames, used = self._parse(data)
            if used < len(data):
                self._buffer += memoryview(data)[used:]
            return frames
        self._buffer += data
        if len(self._buffer) < self._wanted:
            return []
        frames, used = self._parse(self._buffer)
        if used == len(self._buffer):
            self._buffer = bytearray()  # gives the memory back
        else:
            del self._buffer[:used]
        return frames

    def _parse(self, data: bytes | bytearray | memoryview) -> tuple[list[bytes], int]:
        """The whole frames at the start of ``data`` and how many bytes they took."""
        frames: list[bytes] = []
        start = 0
        end = len(data)
        self._wanted = _HEADER
        with memoryview(data) as view:
            while end - start >= _HEADER:
                size = int.from_bytes(view[start : start + _HEADER], "big")
                if size > MAX_FRAME:
                    self._broken = f"a frame of {size} bytes is longer than {MAX_FRAME}"
                    raise FrameError(self._broken)
                stop = start + _HEADER + size
                if stop > end:
                    self._wanted = _HEADER + size
                    break
                frames.append(bytes(view[start + _HEADER : stop]))
                start = stop
        return frames, start
