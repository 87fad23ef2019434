"""The sink of a run, by ``--store``."""

from __future__ import annotations

from pathlib import Path

from downloader.config.config import Config
from downloader.core.ownership import Rules
from downloader.sinks.sink import Sink

__all__ = ["open_sink"]


def open_sink(config: Config, rules: Rules) -> Sink:
    """Return the sink that ``config`` names; ``rules`` are for names that are taken."""
    if config.store == "null":
        from downloader.sinks.null import NullSink

        return NullSink()
    from downloader.sinks.directory import FilesSink

    root = Path(config.output)
    return FilesSink(root, config.layout, rules, one_system=config.fsync)
