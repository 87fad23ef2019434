"""Fetch one file in one attempt with the requests session, streamed to the sink.

Every failure is raised as ``FetchError`` with a documented code, or as ``DestinationError``.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from time import monotonic, time
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import gevent

from downloader.config.config import Config
from downloader.core.content_check import check_length
from downloader.core.opt_out import FIELDS, opt_out
from downloader.core.redact import redact_url
from downloader.core.redirects import REDIRECTS, is_private, next_url, only_location
from downloader.core.stated_checksum import Body, Stated, stated_checksum
from downloader.core.throughput import Pace
from downloader.core.units import show_size
from downloader.core.urls import login_of
from downloader.errors import DestinationError, FetchError
from downloader.http.content_coding import CHUNK, chunks, codings_of
from downloader.http.exceptions import (
    PROXY_LOGIN,
    below_min_speed,
    deadline_exceeded,
    is_stale,
    proxy_login_refused,
    refusal_of,
    translate,
)
from downloader.http.origin import Origin
from downloader.http.response import STORED
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask, open_writer, publish_prepared
from downloader.messages import Receiving, ResponseInfo
from downloader.process.long_work import BUSY, Pauses, in_thread
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import Unprepared
from downloader.sources.source import Request

__all__ = ["Fetched", "Places", "Postponed", "RequestsClient", "Turn"]

_FRESH = 1.0  # seconds for which a redirect is taken to hold
_MOST_RETURNS = 3  # to the first host, in one attempt

_SMALL = 64 << 10
_DRAIN = 1.0  # seconds to wait for a small body that is not stored


class Fetched(NamedTuple):
    """A stored file.

    ``how``: what ``FileWriter.publish`` returned; ``verified``: the length was checked against the
    response or the source; ``requests``: number of requests, including redirects; ``encoded``: it is stored
    in a content coding that was not requested. ``origin``: the host that it was redirected to, or "".
    """

    size: int
    crc: int
    how: int
    verified: bool
    requests: int
    encoded: bool
    origin: str = ""


class Postponed(Exception):
    """A redirect leads to a host that is paused until ``until``; ``requests`` were made so far.

    Or, if ``unknown`` is not None, to that origin, whose robots.txt is not known yet.
    """

    def __init__(self, until: float, requests: int, unknown: Origin | None = None) -> None:
        super().__init__(until, requests, unknown)
        self.until = until
        self.requests = requests
        self.unknown = unknown


class Turn(NamedTuple):
    """When a request may be sent to another host (seconds, monotonic).

    ``waited``: how long it has waited for that.
    """

    at: float
    waited: float = 0.0


class Places(Protocol):
    """The places of redirected requests at hosts, each given by the key of its origin.

    Both methods raise FetchError if the host takes no request.
    """

    def move(self, before: str, after: str, hops: int, *, patient: bool = True) -> Turn:
        """Wait until a request that was sent to ``before`` may be sent to ``after``, after ``hops``.

        ``patient``: also while ``after`` is paused, for some time.
        """

    def back(self, first: str, hops: int) -> float:
        """Return when the request may be sent to ``first`` again; ``hops`` led to its present place."""


class _Attempt(NamedTuple):
    """The clock of the deadline of an attempt, and the URLs that it was redirected to so far.

    These may have credentials, of which the servers behind them know.
    """

    clock: gevent.Timeout
    hops: list[str]


class _Opened(NamedTuple):
    """A response whose body is not read, its URL, and the key of its origin.

    ``redirected``: the URL is not the first one. ``requests``: how many were sent.
    """

    response: Any
    url: str
    key: str
    redirected: bool
    requests: int


class RequestsClient:
    """A client that fetches files through ``session``.

    ``turn`` is called before any redirect is followed, and returns when the --rate of its host allows a
    request. ``permit`` is called with URL and origin before any redirect is followed, with --robots: it
    returns False if the robots.txt of the origin is not known yet, and raises FetchError if it refuses the
    URL. ``places`` has a redirected request wait for another host, which does not count for the deadline;
    ``patient``: also while that is paused. ``recording``: the sink wants to know what the response says
    about each file. ``stored``: the statuses of a response whose body is stored.

    ``storing``: the greenlets that have received their file, and publish it; no limit is for that.
    """

    def __init__(
        self,
        config: Config,
        session: HttpSession,
        turn: Callable[[str], float] | None = None,
        permit: Callable[[str, Origin], bool] | None = None,
        places: Places | None = None,
        *,
        patient: bool = True,
        recording: bool = False,
        stored: Container[int] = STORED,
    ) -> None:
        self._recording = recording or config.recording
        self._permit = permit
        self._stored = stored
        self._turn = turn
        self._places = places
        self._patient = patient
        self._config = config
        self._checking = config.checking
        self._session = session
        self._secrets = config.secrets
        self._echoes = config.echoes
        self._cacert = config.cacert
        # By greenlet: the response that it reads, since when, and its measurement for --min-speed.
        self._reading: dict[gevent.Greenlet, tuple[Any, float, Pace | None]] = {}
        self.storing: set[gevent.Greenlet] = set()

    def sweep(self) -> None:
        """End attempts whose body is slower than --min-speed; one greenlet does this for all."""
        while True:
            gevent.sleep(1)
            now = monotonic()
            for greenlet, (response, began, pace) in list(self._reading.items()):
                if pace is not None and pace.too_slow(now, began, response.tell()):
                    greenlet.kill(below_min_speed(self._config), block=False)

    def reads(self, greenlet: gevent.Greenlet) -> bool:
        """Return whether ``greenlet`` is sent a body."""
        return greenlet in self._reading

    def is_served(self, greenlet: gevent.Greenlet) -> bool:
        """Return whether ``greenlet`` is sent a body, or publishes it."""
        return greenlet in self._reading or greenlet in self.storing

    def received(self, greenlet: gevent.Greenlet) -> int:
        """Return how many bytes of a body ``greenlet`` has received, in whole chunks."""
        reading = self._reading.get(greenlet)
        return int(reading[0].tell()) if reading is not None else 0

    @property
    def receiving(self) -> Receiving:
        """Return what has arrived of the bodies of unfinished files."""
        responses = [response for response, _, _ in self._reading.values()]
        missing = [rest for response in responses if (rest := response.length_remaining)]
        arrived = sum(response.tell() for response in responses)
        return Receiving(arrived, len(responses), sum(missing), len(missing))

    def fetch(self, task: FetchTask, url: str) -> Fetched:
        """Fetch ``url``, store it as the file of ``task`` in its batch, and return the result.

        Raises FetchError, DestinationError, Postponed.
        """
        writer: CheckedWriter | None = None
        response: Any = None
        if task.is_retry:
            self._session.sends_again(task.origin)
        with self._limits() as attempt:
            try:
                opened = self._open(url, task.origin, task.request, attempt)
                response = opened.response
                if self._config.respect:
                    self._check_opt_out(response)
                length = response.length_remaining  # as `core.framing` says
                check_length(length or 0, self._checking.max_size)
                if self._recording:
                    task.response = self._info(opened, task, attempt.hops)
                task.stated = self._stated(response, task) if self._checking.checksums == "all" else None
                writer = open_writer(task, self._checking)
                self._stream(response, writer, length)
                _check_whole(response, length)
                self._reading.pop(gevent.getcurrent(), None)
                attempt.clock.close()
                verified = (
                    length is not None or response.chunked or task.promised or task.stated is not None
                )
                how = self._publish(task, writer)
                encoded = "Content-Encoding" in response.headers and self._is_unrequested(response)
                elsewhere = opened.key if opened.key != task.origin.key else ""
                done = Fetched(
                    *(writer.size, writer.crc, how, verified, opened.requests, encoded, elsewhere)
                )
                writer = None
                return done
            finally:
                self._reading.pop(gevent.getcurrent(), None)
                if writer is not None:
                    writer.abort()
                if response is not None:
                    response.close()

    def _publish(self, task: FetchTask, writer: CheckedWriter) -> int:
        if task.cookie_tries:
            task.origin.note_let_in()
        try:
            return task.batch.publish(task, writer)
        except Unprepared:
            pass
        greenlet = gevent.getcurrent()
        self.storing.add(greenlet)
        try:
            return publish_prepared(task, writer)
        finally:
            self.storing.discard(greenlet)

    def read(self, url: str, most: int) -> bytes:
        """Return the body at ``url``, at most ``most`` bytes, for listings.

        Raises FetchError.
        """
        response: Any = None
        with self._limits() as attempt:
            try:
                response = self._open(url, self._session.origin(url), None, attempt).response
                length = response.length_remaining
                if length is not None and length > most:
                    raise FetchError("too-large", f"{show_size(length)} is more than {show_size(most)}")
                body, pause = bytearray(), Pauses()
                for chunk in chunks(response, self._config.compressed):
                    pause()
                    body += chunk
                    if len(body) > most:
                        raise FetchError("too-large", f"more than {show_size(most)}")
                _check_whole(response, length)
                return bytes(body)
            finally:
                if response is not None:
                    response.close()

    @contextmanager
    def _limits(self) -> Iterator[_Attempt]:
        """End the attempt at the deadline, unless its clock is closed, and translate its exceptions.

        What these say has no credential of a URL that a server has named.
        """
        clock = gevent.Timeout.start_new(self._config.deadline)
        hops: list[str] = []
        try:
            yield _Attempt(clock, hops)
        except gevent.Timeout as timeout:
            if timeout is not clock:
                raise
            raise deadline_exceeded(self._config) from None
        except (DestinationError, Postponed):
            raise
        except Exception as error:
            failed = translate(error, self._secrets, self._cacert)
            if hops:
                failed.detail = self._echoes.cut(failed.detail, hops=hops)
            if failed is error:
                raise
            raise failed from error
        finally:
            clock.close()

    def _open(self, url: str, origin: Origin, given: Request | None, attempt: _Attempt) -> _Opened:
        """Return the response for ``url``, of ``origin``, after redirects, which ``attempt`` has then.

        ``given`` is the request of the source, None for a plain GET.
        """
        session, listed = self._session, url
        extra = headers = given.headers if given is not None else ()
        stored = self._stored
        if given is not None and given.expected_status != 200:
            stored = {given.expected_status}
        first, hops, left = origin, 0, False
        made, returns = 0, 0  # requests before those of these hops, and how often that was
        waited = aged = 0.0  # seconds, in these hops, and since the last redirect came
        try:
            while True:
                cookies = session.cookies_for(origin, url)
                try:
                    response = session.get_file(url, origin, extra, cookies)
                except Exception as error:
                    if is_stale(error):
                        continue  # retry on another connection; a new one is never stale
                    raise
                if response.status in stored:
                    return _Opened(response, url, origin.key, hops > 0, made + hops + 1)
                try:
                    before, url = url, self._follow(url, response, hops, origin, cookies)
                finally:
                    _discard_response(response)
                came = monotonic()
                attempt.hops.append(url)
                target = session.origin(url, bare=True)
                if target.key != origin.key:
                    # Credentials and headers are for the first origin only; once dropped, they are not
                    # sent again in this attempt.
                    at, origin, extra, left = origin, target, (), True
                    self._check_address(before, url, at)
                    waited += self._await_place(at.key, origin.key, hops, made, attempt.clock)
                    if waited > _FRESH and returns < _MOST_RETURNS:
                        made, returns = made + hops + 1, returns + 1
                        self._go_back(first.key, hops, made, attempt.clock)
                        url, origin, extra, left, hops = listed, first, headers, False, 0
                        waited = aged = 0.0
                        continue
                elif not left and login_of(url) is not None:
                    origin = session.origin(url)  # with the login that the server names, as curl sends it
                if self._permit is not None and not self._permit(url, origin):
                    raise Postponed(0.0, made + hops + 1, origin)
                self._await_turn(origin.key)
                hops, aged = hops + 1, monotonic() - came
        except Exception as error:
            if not (hops or made or origin is not first) or isinstance(error, Postponed):
                raise
            failed = translate(error, self._secrets, self._cacert)
            failed.requests, failed.origin = made + hops + 1, origin.key
            failed.outdated = aged > _FRESH
            raise failed from error

    def _follow(self, url: str, response: Any, hops: int, origin: Origin, cookies: str) -> str:
        """Return the URL that ``response`` redirects to. Raises FetchError if it is not a redirect.

        ``cookies``: those that were sent.
        """
        locations = response.headers.getlist("Location")
        if response.status not in REDIRECTS or not locations:
            if response.status == PROXY_LOGIN and origin.forwarded:
                raise proxy_login_refused()  # by the proxy, which answers in place of the server
            failed = _refusal(response)
            self._session.note_cookies(failed, origin, url, cookies)
            raise failed
        # http.client decodes fields as Latin-1. Bytes that are not UTF-8 stay what they are.
        location = only_location(locations).encode("latin-1").decode("utf-8", "surrogateescape")
        return next_url(url, location, hops, self._config.redirects)

    def _await_place(self, before: str, after: str, hops: int, made: int, clock: gevent.Timeout) -> float:
        """Wait until a request may be sent to the origin ``after``; return how many seconds that took.

        Raises FetchError, Postponed.
        """
        if self._places is None:
            return 0.0
        clock.cancel()
        turn = self._places.move(before, after, hops, patient=self._patient)
        clock.start()
        if turn.at > monotonic():
            raise Postponed(turn.at, made + hops + 1)
        return turn.waited

    def _go_back(self, first: str, hops: int, made: int, clock: gevent.Timeout) -> None:
        """Wait until a request may be sent to the origin ``first`` again. Raises FetchError, Postponed."""
        assert self._places is not None
        clock.cancel()
        at = self._places.back(first, hops)
        clock.start()
        if at > monotonic():
            raise Postponed(at, made)
        self._await_turn(first)

    def _await_turn(self, key: str) -> None:
        if self._turn is not None and (pause := self._turn(key) - monotonic()) > 0:
            gevent.sleep(pause)

    def _check_address(self, before: str, after: str, origin: Origin) -> None:
        if self._config.allow_private_redirects or origin.proxy:
            return
        if is_private(self._addresses(after)) and not is_private(self._addresses(before)):
            raise FetchError(
                "redirect-refused", "to a private address; --allow-private-redirects allows it"
            )

    def _addresses(self, url: str) -> list[str]:
        # The session's own resolver, so that the checked address is the one that is connected to.
        return self._session.resolver.addresses(urlsplit(url).hostname or "")

    def _stream(self, response: Any, writer: CheckedWriter, length: int | None) -> None:
        least = self._config.min_speed
        pace = Pace(least) if least else None
        self._reading[gevent.getcurrent()] = (response, monotonic(), pace)
        if not least and length is not None and length <= CHUNK and not self._decodes(response):
            # One read; urllib3 raises if the body is short.
            writer.write(response.read(decode_content=False))
            return
        pause, slow = Pauses(), False
        for chunk in chunks(response, self._config.compressed, as_it_comes=bool(least)):
            began = monotonic()
            if slow:
                in_thread(writer.write, chunk)
            else:
                writer.write(chunk)
            slow = monotonic() - began > BUSY
            # Where there is always more to read, reading it lets nobody else run.
            pause()

    def _decodes(self, response: Any) -> bool:
        return self._config.compressed and "Content-Encoding" in response.headers

    def _is_unrequested(self, response: Any) -> bool:
        """Return whether ``response`` is stored in a content coding that no request asked for."""
        codings = codings_of(response)
        if self._config.compressed:
            return bool(codings.others)
        requested = str(self._session.headers["Accept-Encoding"]).lower().split(",")
        names = {each.partition(";")[0].strip() for each in requested}
        return not names.issuperset((*codings.known, *codings.others)) and "*" not in names

    def _stated(self, response: Any, task: FetchTask) -> Stated | None:
        """Return the checksum that ``response`` states of the bytes that are stored."""
        own = task.request.headers if task.request is not None else ()
        requested = str(self._session.headers["Accept-Encoding"]).lower() not in ("", "identity")
        requested = requested or any(name.lower() == "accept-encoding" for name, _ in own)
        body = Body(response.status, str(codings_of(response)), self._config.compressed, requested)
        return stated_checksum(body, response.headers.getlist)

    def _info(self, opened: _Opened, task: FetchTask, hops: list[str]) -> ResponseInfo:
        response, url = opened.response, opened.url
        headers, cut = response.headers, self._echoes.cut
        sent = task.url, task.request.headers if task.request is not None else (), hops
        return ResponseInfo(
            status=response.status,
            url=self._echoes.cut_url(url, *sent) if opened.redirected else redact_url(url),
            etag=cut(headers.get("ETag", ""), *sent),
            last_modified=cut(headers.get("Last-Modified", ""), *sent),
            content_type=cut(headers.get("Content-Type", ""), *sent),
            fetched_at=time(),
            redirected=opened.redirected,
        )

    def _check_opt_out(self, response: Any) -> None:
        """Raise FetchError ``opted-out`` if ``response`` says that its content is not to be used."""
        tags, reservations = (response.headers.getlist(name) for name in FIELDS)
        if why := opt_out(tags, reservations, self._session.product_token):
            _discard_response(response)
            raise FetchError("opted-out", why)


def _check_whole(response: Any, length: int | None) -> None:
    """Raise FetchError ``truncated`` unless ``length`` bytes were read; None: it is not known."""
    if length is not None and response.tell() != length:
        raise FetchError("truncated", f"{response.tell()} of {length} bytes arrived")


def _refusal(response: Any) -> FetchError:
    status = response.status
    if status >= 400:
        failed = refusal_of(response)
        failed.turned_away = response.only_one and failed.refuses
        return failed
    if status in REDIRECTS:
        return FetchError("unexpected-status", f"the server answered {status} without a Location")
    return FetchError("unexpected-status", f"the server answered {status} to a plain GET")


def _discard_response(response: Any) -> None:
    """Drain a body that is known to be short, so that its connection can be reused; else close it.

    The status counts however the body ends, so a slow one is not waited for.
    """
    left = response.length_remaining
    if response.status < 200 or response.status in (204, 304):
        # These have no body, whatever the headers say; if one arrives, it must not be read as the next
        # response.
        left = None
    if left is not None and left <= _SMALL and not response.chunked:
        with gevent.Timeout(_DRAIN, False):
            response.drain_conn()
    response.close()
