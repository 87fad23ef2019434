"""Register the kinds of sink that ``--store`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from downloader.config.extensions import Extension, Extensions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from downloader.config.config import Config
    from downloader.files.directory import Directory

__all__ = ["SINK_KINDS", "SinkForm", "StoresColumns", "Unsharded"]


class SinkForm(Extension, Protocol):
    """The part of a sink kind that a Config needs; ``sinks.sink.SinkKind`` has the rest.

    ``keeps``: stored files remain after the run, and can be verified. ``largest``: the most bytes of an
    item, 0 for no limit; a larger one fails as ``too-large``.
    """

    keeps: bool
    largest: int

    def check(self, config: Config) -> None:
        """Check the options of the kind. Raises ConfigError."""

    def shard_items(self, config: Config) -> int:
        """Return how many items a shard has, 0 where there are no shards.

        A batch of the source is then a whole shard, as long as the source has items.
        """

    def identity(self, config: Config) -> str:
        """Return what must be the same in all runs of a job, to be stored in its journal."""

    def describe(self, identity: str) -> str:
        """Return the options that make ``identity``, for messages."""

    def check_begin(self, config: Config) -> None:
        """Raise ConfigError if DEST has files that a job which begins there would replace, and must not."""

    def tidy(self, home: Directory, is_finished: Callable[[int], bool]) -> None:
        """Remove the tool's own files of shards whose outcome the journal has.

        Called at the start and at the end of a run; ``is_finished`` tells this of a shard.
        """

    def complete(self, config: Config, home: Directory, shards: Sequence[int]) -> int | None:
        """Write what describes all stored files, at the end of a run. Raises DestinationError.

        ``shards``: the numbers of the shards of the job that are published, in order. Return how many files
        of somebody else were replaced, if any.
        """


@runtime_checkable
class StoresColumns(Protocol):
    """What a ``SinkForm`` may have as well, if it stores columns of the list itself."""

    def columns(self, config: Config) -> tuple[str, ...]:
        """Return the columns of the list that are kept without --keep-columns, too."""


class Unsharded:
    """The methods of a kind without shards."""

    largest = 0

    def shard_items(self, config: Config) -> int:
        """Return 0."""
        return 0

    def identity(self, config: Config) -> str:
        """Return the layout."""
        return config.layout

    def describe(self, identity: str) -> str:
        """Return the option of the layout."""
        return f"--layout {identity}"

    def check_begin(self, config: Config) -> None:
        """Do nothing: --existing says what becomes of files."""

    def tidy(self, home: Directory, is_finished: Callable[[int], bool]) -> None:
        """Do nothing."""

    def complete(self, config: Config, home: Directory, shards: Sequence[int]) -> None:
        """Do nothing."""


SINK_KINDS: Final[Extensions[SinkForm]] = Extensions(
    "downloader.sinks",
    "--store",
    {
        "files": "downloader.sinks.directory_kind:KIND",
        "tar": "downloader.sinks.shards.tar_kind:KIND",
        "parquet": "downloader.sinks.shards.parquet_kind:KIND",
        "null": "downloader.sinks.null_kind:KIND",
        "local": "downloader.sinks.local_kind:KIND",
    },
)
