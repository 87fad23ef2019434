"""What a source is: it yields items, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from downloader.messages import Page, Recall

__all__ = ["Fetch", "Fetching", "Source"]

Fetch = Callable[[str], bytes | bytearray]
"""GET a URL of the source itself (a listing), within its retry policy; raises SourceError."""

Fetching = Callable[[], Fetch]
"""What gives a source its Fetch, once. That imports requests, which takes longer than to read a list of a
thousand files: a source that fetches nothing does not call it."""


class Source(Protocol):
    """A source of items."""

    def recall(self, batch: Recall) -> Page:
        """The items of an earlier batch, ``batch.count`` of them in their order, and its ``origin``. They
        have the names that the journal has: under these they are stored, whatever the source would give
        now.

        Called before ``pages``, in ascending order of batches. Where the source corrects what it gave
        before, the page has a cursor: it, ``origin`` and the names replace those of the batch. Raises
        SourceError when the source is not what it was.
        """

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """Pages from ``cursor`` on (empty: from the start) to the end of the source.

        ``size()`` says how many items the next page may have at most.

        Raises SourceError with what broke and where.
        """
