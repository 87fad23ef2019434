"""Define the kind of sink that stores items on the own disk of each node of a cluster.

A node stores them as files: its runs have ``--store files``, so this kind opens no sink itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from downloader.errors import ConfigError
from downloader.sinks.directory_kind import DirectoryKind

if TYPE_CHECKING:
    from downloader.config.config import Config

__all__ = ["KIND", "LocalKind"]


class LocalKind(DirectoryKind):
    """The kind of files on the disks of nodes; see ``SinkKind``."""

    name = "local"

    def check(self, config: Config) -> None:
        """Raise ConfigError where there are no nodes, or no place for the plan that all of them see."""
        if config.engine != "ray":
            raise ConfigError(
                "--store local keeps files on the own disks of the nodes of a cluster, with --engine ray; "
                "use --store files here"
            )
        if not config.journal:
            raise ConfigError(
                "--store local: each node has a DEST of its own, so the plan needs another place; give "
                "--journal a directory that all nodes share, or s3://BUCKET/PREFIX"
            )


KIND = LocalKind()
