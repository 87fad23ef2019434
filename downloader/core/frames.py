"""Frame the messages between processes: a 4-byte big-endian length, then the payload."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_FRAME", "FrameError", "Unpacker", "pack"]

MAX_FRAME: Final = 64 * 1024 * 1024
"""The maximum payload in bytes. A greater length means that the stream does not consist of frames."""

_HEADER: Final = 4


class FrameError(ValueError):
    """The stream does not consist of frames, or ended inside one."""


def pack(payload: bytes) -> bytes:
    """Return ``payload`` as one frame. Raises FrameError if it is longer than ``MAX_FRAME``."""
    size = len(payload)
    if size > MAX_FRAME:
        raise FrameError(f"a frame of {size} bytes is longer than {MAX_FRAME}")
    return size.to_bytes(_HEADER, "big") + payload


class Unpacker:
    """A decoder that extracts payloads from a stream that arrives in pieces of any size.

    It takes time linear in the bytes fed. It buffers at most one incomplete frame (``MAX_FRAME``
    bytes), and no more than has arrived. The payloads do not share memory with the input.
    """

    __slots__ = ("_broken", "_buffer", "_wanted")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = _HEADER  # bytes that the buffer must hold before it is parsed again
        self._broken: str | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Return the payloads that ``data`` completes, in order.

        Raises FrameError for a frame longer than ``MAX_FRAME`` as soon as its length is known, and
        again on every later call, since a stream that is out of step does not recover.
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
            self._buffer = bytearray()  # frees the memory
        else:
            del self._buffer[:used]
        return frames

    def _parse(self, data: bytes | bytearray | memoryview) -> tuple[list[bytes], int]:
        """Return the complete frames at the start of ``data``, and the number of bytes they take."""
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
