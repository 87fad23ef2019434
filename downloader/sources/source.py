"""What a kind of source is: a Lister in the feeder, a RequestBuilder in the worker, and what both share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from downloader.config.config import Config
from downloader.config.source_kinds import SourceForm
from downloader.core.identity import Identity
from downloader.messages import Item, Page, Recall

__all__ = ["Fetch", "Fetching", "Lister", "Request", "RequestBuilder", "SourceKind"]

Fetch = Callable[[str], bytes | bytearray]
"""GET a URL of the source itself (a listing), within its retry policy; raises SourceError."""

Fetching = Callable[[], Fetch]
"""What gives a source its Fetch, once. That imports requests, which takes longer than to read a list of a
thousand files: a source that fetches nothing does not call it."""


class Lister(Protocol):
    """Lists the items of a source, page by page, in the feeder."""

    def recall(self, batch: Recall) -> Page:
        """Return the items of an earlier batch, ``batch.count`` of them in their order, and its ``origin``.

        They have the names that the journal has: under these they are stored, whatever the source would
        give now.

        Called before ``pages``, in ascending order of batches. Where the source corrects what it gave
        before, the page has a cursor: it, ``origin`` and the names replace those of the batch. Raises
        SourceError when the source is not what it was.
        """

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """Yield pages from ``cursor`` on (empty: from the start) to the end of the source.

        ``size()`` returns how many items the next page may have at most. Raises SourceError with what
        broke and where.
        """


class Request(msgspec.Struct, frozen=True):
    """The GET that fetches an item.

    ``headers`` are sent besides those of the run and in place of those of the same name, to the origin of
    ``url`` only: a redirect to another does not take them along. ``expected_status`` is the status of a
    response that has the file.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    expected_status: int = 200


class RequestBuilder(Protocol):
    """Builds the requests for the items of a source, in the worker.

    ``base_url`` stands before the quoted name in the URL of every item that has no URL of its own; ""
    where ``request`` is to be asked for each item. It is the bulk form, for sources of millions of names.
    """

    base_url: str

    def request(self, item: Item) -> Request:
        """Return the request for ``item``. It must not wait: what it needs it has from the beginning.

        Raises FetchError (``bad-url``) for an item that nothing can be asked for.
        """


class SourceKind(SourceForm, Protocol):
    """A kind of source. Its module is imported in every process, also in the supervisor, which has no
    gevent: what opens sockets is imported by ``lister`` and ``request_builder``.

    ``unique_names``: no two items have one name. ``cursors_last``: a cursor is good for a source that has
    changed since.
    """

    unique_names: bool
    cursors_last: bool

    def identity(self, config: Config) -> Identity:
        """Return what tells the source of ``config`` from others of its kind."""

    def lister(self, config: Config, fetching: Fetching, name_key: bytes) -> Lister:
        """Return what lists the source of ``config``, which is not read yet.

        ``name_key`` is for digests in names (``core.naming.url_name``). Raises SourceError, ConfigError.
        """

    def request_builder(self, config: Config) -> RequestBuilder:
        """Return what builds the requests for the items of the source of ``config``."""
