"""The batches of a sink that publishes each file at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from downloader.core.item_states import UNTOUCHED
from downloader.messages import Item, ResponseInfo
from downloader.sinks.sink import BatchContent

if TYPE_CHECKING:
    from downloader.sinks.directory import FilesSink, FilesWriter

__all__ = ["DirectoryBatch"]


class DirectoryBatch:
    """A batch whose files are published one at a time; see ``BatchWriter``."""

    __slots__ = ("_seq", "_sink", "put")

    recovered = None

    def __init__(self, sink: FilesSink, seq: int) -> None:
        self._sink = sink
        self._seq = seq
        self.put = sink.put  # not a method of its own: it is called for every file

    def open(
        self, item: Item, index: int, claim: int = UNTOUCHED, response: ResponseInfo | None = None
    ) -> FilesWriter:
        """See ``BatchWriter``."""
        temporary = f".downloader-{self._sink.rules.temporary}{self._seq}-{index}"
        return self._sink.open(item.name, temporary, claim)

    def flush(self) -> None:
        """Do nothing: ``put`` writes at once."""

    def commit(self, content: BatchContent) -> None:
        """Do nothing: each file is published already."""

    def abort(self) -> None:
        """Do nothing."""
