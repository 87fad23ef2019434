"""Define the kind of sink that stores each item as a file in a directory."""

from __future__ import annotations

import posix
from typing import TYPE_CHECKING

from downloader.config.extensions import Option
from downloader.config.sink_kinds import Unsharded

if TYPE_CHECKING:  # the command line loads every kind, for its help
    from collections.abc import Callable
    from pathlib import Path

    from downloader.config.config import Config
    from downloader.core.ownership import Rules
    from downloader.sinks.sink import Inspect, Sink, Undo, Written

__all__ = ["KIND", "DirectoryKind"]


class DirectoryKind(Unsharded):
    """The kind of ``FilesSink``; see ``SinkKind``."""

    name = "files"
    options: tuple[Option, ...] = ()
    keeps = True

    def check(self, config: Config) -> None:
        """Do nothing: there are no options."""

    def open(self, config: Config, rules: Rules) -> Sink:
        """Return a FilesSink."""
        from pathlib import Path

        from downloader.sinks.directory import FilesSink

        return FilesSink(Path(config.output), config.layout, rules, one_system=config.fsync)

    def inspector(self, root: Path, identity: str) -> Inspect:
        """Return a function that reads the file of an item under ``root``, and follows no link there.

        It raises DestinationError where a file cannot be read, as the disk fails or this user may not: that
        says nothing about what it has.
        """
        from downloader.core.file_errors import is_unreadable
        from downloader.files.directory import UnsafeFile
        from downloader.sinks.stored import is_inside, matches, open_below, place, unreadable

        def inspect(written: Written) -> str:
            where = place(written.name, identity)
            if not is_inside(where):
                return "not a name in DEST"
            try:
                fd = open_below(root, where)
            except UnsafeFile:
                return "no file in DEST any more; links are not followed"
            except (FileNotFoundError, NotADirectoryError):
                return "missing"
            except OSError as error:
                if is_unreadable(error):
                    raise unreadable(root / where, error) from error
                return "changed since it was stored"
            try:
                return "" if matches(fd, written.size, written.crc) else "changed since it was stored"
            except OSError as error:
                raise unreadable(root / where, error) from error
            finally:
                posix.close(fd)

        return inspect

    def opener(self, root: Path, identity: str) -> Callable[[str], int]:
        """See ``sinks.sink.Opens``."""
        from downloader.errors import DestinationError
        from downloader.sinks.stored import is_inside, open_below, place

        def open_file(name: str) -> int:
            where = place(name, identity)
            try:
                return open_below(root, where) if is_inside(where) else -1
            except (OSError, DestinationError):
                return -1

        return open_file

    def undoer(self, root: Path, identity: str, prefix: str) -> Undo:
        """See ``sinks.sink.Undoes``."""
        from downloader.sinks.exchanged import undo_exchange

        return undo_exchange(root, identity, prefix)


KIND = DirectoryKind()
