"""The batches of a sink that publishes each file at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from downloader.core.item_states import NO_CLAIM, Claim
from downloader.messages import Item, ResponseInfo
from downloader.sinks.exchanged import temporary_name
from downloader.sinks.sink import BatchContent
from downloader.sinks.stored import place

if TYPE_CHECKING:
    from downloader.sinks.directory import FilesSink, HeldDirectory
    from downloader.sinks.files_writer import FilesWriter

__all__ = ["DirectoryBatch"]


class DirectoryBatch:
    """A batch whose files are published one at a time; see ``BatchWriter``."""

    __slots__ = ("_seq", "_sink", "_used", "put")

    recovered = None

    def __init__(self, sink: FilesSink, seq: int) -> None:
        self._sink = sink
        self._seq = seq
        self._used: set[HeldDirectory] = set()
        self.put = sink.put  # not a method of its own: it is called for every file

    def open(
        self, item: Item, index: int, claim: Claim = NO_CLAIM, response: ResponseInfo | None = None
    ) -> FilesWriter:
        """See ``BatchWriter``."""
        temporary = temporary_name(self._sink.rules.temporary, self._seq, index)
        return self._sink.open(item.name, temporary, claim, self._used)

    def astray(self) -> Callable[[str], bool] | None:
        """See ``Strays``. Looks at each directory, not at each file."""
        if not self._used or not (paths := self._sink.astray(self._used)):
            return None
        layout = self._sink.layout
        return lambda name: place(name, layout).rpartition("/")[0] in paths

    def found(self) -> None:
        """See ``Strays``."""
        self._used.clear()

    def flush(self) -> None:
        """Do nothing: ``put`` writes at once."""

    def commit(self, content: BatchContent) -> None:
        """Do nothing: each file is published already."""

    def abort(self) -> None:
        """Do nothing."""
