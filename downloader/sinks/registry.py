"""The sink of a run, by ``--store``, and whether what it stored is still there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from downloader.config.config import Config
from downloader.core.ownership import Rules
from downloader.sinks.sink import Sink
from downloader.sinks.stored import file_matches, place

__all__ = ["Verify", "open_sink", "verifier"]

Verify = Callable[[str, int, int], bool]
"""Returns whether what is stored under a name has that size and CRC-32."""


def open_sink(config: Config, rules: Rules) -> Sink:
    """Return the sink that ``config`` names; ``rules`` are for names that are taken."""
    if config.store == "null":
        from downloader.sinks.null import NullSink

        return NullSink()
    from downloader.sinks.directory import FilesSink

    root = Path(config.output)
    return FilesSink(root, config.layout, rules, one_system=config.fsync)


def verifier(store: str, root: Path, layout: str) -> Verify:
    """Return what verifies the files under ``root``, stored with ``store`` and ``layout``.

    It agrees with ``Sink.verify``, and needs no descriptor that stays open.
    """
    if store == "null":
        from downloader.sinks.null import NullSink

        return NullSink().verify

    def on_disk(name: str, size: int, crc: int) -> bool:
        return file_matches(os.fspath(root / place(name, layout)), None, size, crc)

    return on_disk
