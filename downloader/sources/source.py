"""Define the interfaces of a source: a Lister in the feeder, a RequestBuilder in the worker, the kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import msgspec

from downloader.config.config import Config
from downloader.config.source_kinds import SourceForm
from downloader.core.identity import Identity
from downloader.messages import Item, Page, Recall

__all__ = [
    "ChecksFiles",
    "Closes",
    "DeclaresColumns",
    "Fetch",
    "Fetching",
    "Lister",
    "Request",
    "RequestBuilder",
    "SourceKind",
]

Fetch = Callable[[str], bytes | bytearray]
"""GETs a URL of the source itself (a listing), with retries; raises SourceError."""

Fetching = Callable[[], Fetch]
"""Returns the Fetch of a source; called at most once.

This imports requests, which takes longer than reading a list of a thousand files, so a source that fetches
nothing does not call it.
"""


class Lister(Protocol):
    """The part of a source in the feeder, which lists its items page by page."""

    def recall(self, batch: Recall) -> Page:
        """Return the items of an earlier batch, ``batch.count`` of them in order, and its ``recall_data``.

        They have the names in the journal, under which they are stored, even if the source would give other
        names now.

        Called before ``pages``, in ascending order of batches. If the source corrects the batch, the page
        has a cursor; then the cursor, ``recall_data`` and the names replace those of the batch. Raises
        SourceError if the source is not what it was.
        """

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """Yield pages from ``cursor`` (empty: from the start) to the end of the source.

        ``size()`` returns the maximum number of items of the next page. Raises SourceError that says what
        failed and where.
        """


@runtime_checkable
class DeclaresColumns(Protocol):
    """A lister that may know the types of the columns which travel with its items."""

    def column_types(self, before: str, *, begun: bool) -> str:
        """Return the types (``core.column_types.ColumnTypes``) as JSON, "" where there are no columns.

        ``before``: those of the job so far, which stay, or "". ``begun``: the job has items
        already. Called before ``recall`` and ``pages``. Raises SourceError, ConfigError.
        """


@runtime_checkable
class ChecksFiles(Protocol):
    """A lister that can find its source wrong before it lists anything."""

    def check(self, *, begun: bool) -> None:
        """Read the beginning of every file of the source. Raises ConfigError.

        ``begun``: the job has items already. Then what cannot be read is told where it is read.
        """


@runtime_checkable
class Closes(Protocol):
    """A lister that keeps files open."""

    def close(self) -> None:
        """Close them; nothing is read afterwards."""


class Request(msgspec.Struct, frozen=True):
    """The GET that fetches an item.

    ``headers`` are sent in addition to those of the run, and replace those of the same name. They are sent
    to the origin of ``url`` only, not after a redirect to another origin. ``expected_status`` is the status
    of a response that has the file.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    expected_status: int = 200


class RequestBuilder(Protocol):
    """The part of a source in the worker, which builds the requests for its items.

    ``base_url`` is the prefix of the quoted name in the URL of every item that has no URL of its own. It is
    the bulk form, for sources of millions of names. If it is "", ``request`` is called for each item.
    """

    base_url: str

    def request(self, item: Item) -> Request:
        """Return the request for ``item``, without waiting: get everything needed in the constructor.

        Raises FetchError (``bad-url``) for an item that cannot be requested.
        """


class SourceKind(SourceForm, Protocol):
    """A kind of source.

    Its module is imported in every process, including the supervisor, which has no gevent. So modules that
    open sockets are imported in ``lister`` and ``request_builder``.

    ``unique_names``: no two items have the same name. ``cursors_last``: a cursor stays valid when the
    source has changed.
    """

    unique_names: bool
    cursors_last: bool

    def identity(self, config: Config) -> Identity:
        """Return the identity of the source of ``config`` among sources of its kind."""

    def lister(self, config: Config, fetching: Fetching, name_key: bytes) -> Lister:
        """Return the lister of the source of ``config``, which is not read yet.

        ``name_key`` is for digests in names (``core.naming.url_name``). Raises SourceError, ConfigError.
        """

    def request_builder(self, config: Config) -> RequestBuilder:
        """Return the builder of requests for the items of the source of ``config``."""
