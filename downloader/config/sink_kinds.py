"""Register the kinds of sink that ``--store`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from downloader.config.extensions import Extension, Extensions

if TYPE_CHECKING:
    from downloader.config.config import Config

__all__ = ["SINK_KINDS", "SinkForm"]


class SinkForm(Extension, Protocol):
    """The part of a sink kind that a Config needs; ``sinks.sink.SinkKind`` has the rest.

    ``keeps``: stored files remain after the run, and can be verified.
    """

    keeps: bool

    def check(self, config: Config) -> None:
        """Check the options of the kind. Raises ConfigError."""


SINK_KINDS: Final[Extensions[SinkForm]] = Extensions(
    "downloader.sinks",
    "--store",
    {
        "files": "downloader.sinks.directory_kind:KIND",
        "null": "downloader.sinks.null_kind:KIND",
    },
)
