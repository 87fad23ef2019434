"""Fetch the pages of a listing into memory, one at a time.

As in the pipelined client, urllib3 writes the request and opens the connection, and llhttp parses the
response, at a fraction of the cost of requests. If a response is not plain, or ends early, the request is
repeated through the requests client, which then reports the failure if there is one.

A surplus response, taken for the next page, could end a listing early and silently. So two connections
are used in turn: one rests while the other is used, and data that arrived without a request is noticed
before the connection is reused.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import functools
import socket
from collections import deque
from typing import cast

import gevent
import requests

from downloader.config.config import Config
from downloader.core.content_check import Checking, ContentCheck
from downloader.core.units import show_size
from downloader.errors import FetchError
from downloader.http.connection_pool import UrllibConnection
from downloader.http.exceptions import deadline_exceeded, translate
from downloader.http.origin import Origin
from downloader.http.pipelined.header_shape import HeaderShape
from downloader.http.pipelined.parser import NeedsRequestsClient, ResponseParser
from downloader.http.requests_client import RequestsClient
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask
from downloader.messages import Item
from downloader.process.long_work import Pauses
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import NEW

__all__ = ["ListingClient"]

_LARGEST = 256 << 20
_BUFFER = 256 << 10
# After so many responses in a row that were not plain, only the requests client is used.
_MAX_FALLBACKS = 3
_CONNECTIONS = 2
# How often a page is requested again in one attempt, as it was refused without a cookie that has come.
_MAX_COOKIES = 3
_PAGE = cast("FetchTask", object())  # the parser needs a task for each response; this stands for all


class ListingClient:
    """A client that reads one page after another; also a ``http.pipelined.parser.ParserOwner``."""

    def __init__(self, config: Config, session: HttpSession) -> None:
        self._config = config
        self._session = session
        self._requests = RequestsClient(config, session)
        self._enabled = config.lane == "auto" and not config.compressed
        self._resting: deque[UrllibConnection] = deque()  # the longest rested first
        self._fallback_count = 0
        self._buffer = memoryview(bytearray(_BUFFER))
        self._shapes: dict[tuple[bytes, ...], HeaderShape] = {}
        self._template = functools.cache(self._make_template)
        self.max_size = _LARGEST  # --max-size is for files

    def read(self, url: str) -> bytes | bytearray:
        """Return the body at ``url``, whose query, if any, must be quoted. Raises FetchError."""
        base, mark, query = url.partition("?")
        base, origin, head, tail = self._template(base)
        url = base + mark + query
        plain = self._enabled and origin.plain and not origin.sends_cookies
        if plain and self._fallback_count < _MAX_FALLBACKS:
            try:
                with gevent.Timeout(self._config.deadline, deadline_exceeded(self._config)):
                    body = self._get(origin, head + self._session.target(url) + tail)
                self._fallback_count = 0
                return body
            except NeedsRequestsClient:
                self._fallback_count += 1
                while self._resting:
                    self._resting.pop().close()
        for _ in range(_MAX_COOKIES):
            try:
                return self._requests.read(url, _LARGEST)
            except FetchError as error:
                if not error.cookie_renewed:
                    raise
        return self._requests.read(url, _LARGEST)

    def _make_template(self, base: str) -> tuple[str, Origin, bytes, bytes]:
        """Return ``base`` as it is sent, its origin, and the bytes before and after the request target."""
        try:
            base = self._session.normal(base)
            origin = self._session.origin(base)
            return base, origin, *self._session.template(origin)
        except requests.RequestException as error:
            raise translate(error, self._config.secrets, self._config.cacert) from error

    def _get(self, origin: Origin, request: bytes) -> bytes | bytearray:
        connection = self._resting.popleft() if len(self._resting) == _CONNECTIONS else None
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
            raise translate(error, self._config.secrets, self._config.cacert) from error
        finally:
            if connection is not None and keep:
                self._resting.append(connection)
            elif connection is not None:
                connection.close()

    def _exchange(self, sock: socket.socket, request: bytes) -> tuple[bytes | bytearray, bool]:
        """Return the body, and whether the connection can be reused."""
        parser, buffer = ResponseParser(self, self._shapes), self._buffer
        parser.outstanding.append(_PAGE)
        pause = Pauses()  # a read that need not wait does not let the heartbeat run
        sock.settimeout(self._config.read_timeout)
        try:
            sock.sendall(request)
            while not parser.completed:
                count = sock.recv_into(buffer)
                if not count:
                    raise NeedsRequestsClient
                parser.feed(buffer[:count])
                if parser.problem is not None:
                    raise _for_listing(parser.problem)
                pause()
        except TimeoutError:
            raise
        except OSError:
            raise NeedsRequestsClient from None
        body = parser.completed[0][1]
        if isinstance(body, FetchError) and body.sets_cookie:
            raise NeedsRequestsClient
        if isinstance(body, Exception):
            raise _for_listing(body)
        whole = self._large.body if isinstance(body, CheckedWriter) else body
        return whole, not (parser.closing or parser.surplus or parser.in_message)

    def large(self, task: FetchTask, length: int) -> CheckedWriter:
        """See ``ParserOwner``."""
        self._large = _Large()
        return CheckedWriter(self._large, ContentCheck(Item(""), Checking(_LARGEST)))

    def proxied(self) -> None:
        """Do nothing: a proxy matters only for pipelining, and this client sends one request at a time."""


class _Large:
    """A writer that collects a large body in memory; see ``FileWriter``."""

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


def _for_listing(problem: Exception) -> Exception:
    """Return ``problem`` without mention of --max-size, which does not apply to listings."""
    if isinstance(problem, FetchError) and problem.code == "too-large":
        return FetchError("too-large", f"more than {show_size(_LARGEST)}")
    return problem
