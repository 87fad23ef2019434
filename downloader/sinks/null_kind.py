"""Define the kind of sink that counts files and discards them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from downloader.config.extensions import Option
from downloader.config.sink_kinds import Unsharded

if TYPE_CHECKING:  # the command line loads every kind, for its help
    from pathlib import Path

    from downloader.config.config import Config
    from downloader.core.ownership import Rules
    from downloader.sinks.sink import Inspect, Sink

__all__ = ["KIND", "NullKind"]


class NullKind(Unsharded):
    """See ``SinkKind``."""

    name = "null"
    options: tuple[Option, ...] = ()
    keeps = False

    def check(self, config: Config) -> None:
        """Do nothing: the kind has no options."""

    def open(self, config: Config, rules: Rules) -> Sink:
        """Return a NullSink."""
        from downloader.sinks.null import NullSink

        return NullSink()

    def inspector(self, root: Path, identity: str) -> Inspect:
        """Return a function that finds no file damaged, since none is kept."""
        return lambda written: ""


KIND = NullKind()
