"""Where files go. One Protocol, one module each; ``open_sink`` picks by ``--store``.

A sink makes a name appear whole or not at all, and never puts one item over another in silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from downloader.config import Config

__all__ = ["Sink", "Writer", "open_sink"]


class Writer(Protocol):
    """One file on its way in. Exactly one of ``publish`` and ``abort`` ends it."""

    size: int
    crc: int

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append ``chunk``. Raises DestinationError when the destination fails."""

    def publish(self) -> bool:
        """Make the name appear; True when it is new or replaced, False when the same bytes were
        there already.

        Raises FetchError (``name-taken``, ``bad-name``) when it cannot, DestinationError.
        """

    def abort(self) -> None:
        """Leave nothing behind."""


class Sink(Protocol):
    """A destination."""

    def open(self, name: str, seq: int, index: int, *, replace: bool = False) -> Writer:
        """Begin the file ``name`` (a safe relative path), item ``index`` of batch ``seq``.

        Raises FetchError (``bad-name``, ``name-taken``), DestinationError.
        """

    def put(
        self, name: str, body: bytes | bytearray, seq: int, index: int, replace: bool = False
    ) -> tuple[int, bool]:
        """Open, write and publish a whole file; its CRC-32, and what ``Writer.publish`` says.

        Raises as they do.
        """

    def verify(self, name: str, size: int, crc: int) -> bool:
        """Whether the published file has that size and CRC-32."""

    def close(self) -> None:
        """Let go of what is held open."""


def open_sink(config: Config, foreign_before_ns: int) -> Sink:
    """The sink that ``config`` names. ``foreign_before_ns``: see ``journal.Job``."""
    if config.store == "null":
        from downloader.sinks.null import NullSink

        return NullSink()
    from downloader.sinks.files import FilesSink

    root = Path(config.output)
    return FilesSink(root, config.layout, foreign_before_ns, one_system=config.fsync)
