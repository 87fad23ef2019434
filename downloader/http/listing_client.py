"""Pages of a listing: GET into memory, one at a time.

As in the wire lane, urllib3 writes the request and opens the connection, and llhttp reads the answer, at a
fraction of what the same costs through requests. What is not a plain answer is asked again through the
requests lane; so is what breaks off, and then that lane says what it is.

An answer too many, taken for the next page, could end a listing early and silently. So two connections
take turns: one rests while the other answers, and what came meanwhile, unasked, is seen before it is used.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import functools  # noqa: E402
from collections import deque  # noqa: E402
from typing import Any, cast  # noqa: E402

import gevent  # noqa: E402
import requests  # noqa: E402

from downloader.config.config import Config  # noqa: E402
from downloader.core.content_check import ContentCheck  # noqa: E402
from downloader.core.units import show_size  # noqa: E402
from downloader.errors import FetchError  # noqa: E402
from downloader.http.exceptions import deadline_exceeded, translate  # noqa: E402
from downloader.http.pipelined.parser import NeedsRequestsClient, ResponseParser  # noqa: E402
from downloader.http.requests_client import RequestsClient  # noqa: E402
from downloader.http.session import HttpSession, Origin  # noqa: E402
from downloader.http.task import FetchTask  # noqa: E402
from downloader.messages import Item  # noqa: E402
from downloader.sinks.checked_writer import CheckedWriter  # noqa: E402
from downloader.sinks.sink import NEW  # noqa: E402

__all__ = ["ListingClient"]

_LARGEST = 256 << 20
_BUFFER = 256 << 10
# So many answers in a row that were not plain, and the rest is for the requests lane.
_MISFITS = 3
_TURNS = 2
_PAGE = cast("FetchTask", object())  # the parser wants to know whose answer it is: there is only one


class ListingClient:
    """``read`` one page after another. See ``http.pipelined.parser.ParserOwner``."""

    def __init__(self, config: Config, session: HttpSession) -> None:
        self._config = config
        self._session = session
        self._requests = RequestsClient(config, session)
        self._enabled = config.lane == "auto" and not config.compressed
        self._resting: deque[Any] = deque()  # connections, the longest rested first
        self._misfits = 0
        self._buffer = memoryview(bytearray(_BUFFER))
        self._shapes: dict[tuple[bytes, ...], Any] = {}
        self._place = functools.cache(self._look_up)
        self.max_size = _LARGEST  # --max-size is for files

    def read(self, url: str) -> bytes | bytearray:
        """The body at ``url``, whose query, if any, is quoted. Raises FetchError."""
        place, mark, query = url.partition("?")
        place, origin, head, tail = self._place(place)
        url = place + mark + query
        plain = self._enabled and origin.plain and origin.jar is None
        if plain and self._misfits < _MISFITS:
            try:
                with gevent.Timeout(self._config.deadline, deadline_exceeded(self._config)):
                    body = self._get(origin, head + self._session.target(url) + tail)
                self._misfits = 0
                return body
            except NeedsRequestsClient:
                self._misfits += 1
                while self._resting:
                    self._resting.pop().close()
        return self._requests.read(url, _LARGEST)

    def _look_up(self, place: str) -> tuple[str, Origin, bytes, bytes]:
        """``place`` as it is sent, whose it is, and what stands around the target of a request there."""
        try:
            place = self._session.normal(place)
            origin = self._session.origin(place)
            return place, origin, *self._session.template(origin)
        except requests.RequestException as error:
            raise translate(error, self._config.secrets) from error

    def _get(self, origin: Origin, request: bytes) -> bytes | bytearray:
        connection = self._resting.popleft() if len(self._resting) == _TURNS else None
        keep = False
        try:
            if connection is None or not connection.is_connected:
                if connection is not None:
                    connection.close()
                connection = self._session.new_connection(origin)
                connection.connect()
            body, keep = self._exchange(connection.sock, request)
            return body
        except (FetchError, NeedsRequestsClient):
            raise
        except Exception as error:
            raise translate(error, self._config.secrets) from error
        finally:
            if keep:
                self._resting.append(connection)
            elif connection is not None:
                connection.close()

    def _exchange(self, sock: Any, request: bytes) -> tuple[bytes | bytearray, bool]:
        """The body, and whether the connection serves again."""
        parser, buffer = ResponseParser(self, self._shapes), self._buffer
        parser.outstanding.append(_PAGE)
        sock.settimeout(self._config.read_timeout)
        try:
            sock.sendall(request)
            while not parser.completed:
                count = sock.recv_into(buffer)
                if not count:
                    raise NeedsRequestsClient
                parser.feed(buffer[:count])
                if parser.problem is not None:
                    raise _own(parser.problem)
        except TimeoutError:
            raise
        except OSError:
            raise NeedsRequestsClient from None
        body = parser.completed[0][1]
        if isinstance(body, Exception):
            raise _own(body)
        whole = self._large.body if isinstance(body, CheckedWriter) else body
        return whole, not (parser.closing or parser.surplus or parser.in_message)

    def large(self, job: FetchTask, length: int) -> CheckedWriter:
        """See ``ParserOwner``."""
        self._large = _Large()
        return CheckedWriter(self._large, ContentCheck(Item(""), _LARGEST))

    def proxied(self) -> None:
        """See ``ParserOwner``: with one request at a time that is no matter."""


class _Large:
    """A body that does not come in one piece."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.size = self.crc = 0

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self.body += chunk
        self.size += len(chunk)

    def publish(self) -> int:
        return NEW

    def abort(self) -> None:
        self.body = bytearray()


def _own(problem: Exception) -> Exception:
    """``problem`` without a word of --max-size."""
    if isinstance(problem, FetchError) and problem.code == "too-large":
        return FetchError("too-large", f"more than {show_size(_LARGEST)}")
    return problem
