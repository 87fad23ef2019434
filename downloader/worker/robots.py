"""Hold the files of an origin until its robots.txt is known, and refuse those that it disallows.

The robots.txt of an origin is a task like any other: it waits for a slot of its host, is retried, pauses
the host, and goes over the connection that the files of the host use afterwards. But its batch is here, not
in the journal. A file is given to the schedule only when it may be requested, so neither client has to ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic

import gevent
from cachetools import LRUCache

from downloader.config.config import Config
from downloader.core import robots
from downloader.core.item_states import ItemStates
from downloader.core.latency import Histogram
from downloader.core.scheduler import Scheduler
from downloader.errors import FetchError
from downloader.http.origin import Origin
from downloader.http.requests_client import Places, RequestsClient
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask
from downloader.messages import Item
from downloader.process.long_work import BUSY, Pauses, in_thread
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import NEW, FileWriter
from downloader.worker.host_failures import HostFailures

__all__ = ["RobotsGate"]

# What the rules that are kept may take of memory, and of how many origins they are at most.
_MAX_KEPT, _MAX_ORIGINS = 32 << 20, 10_000
_LONG = 64 << 10  # bytes of a robots.txt that takes 20 ms to parse, on a slow machine


class RobotsGate:
    """The robots.txt of all origins, and the files that wait for them.

    ``places``: as for ``RequestsClient``.
    ``client``: fetches what the pipelined client does not. ``fail`` is called to fail a task for good:
    task, error, attempts. ``wake`` is called when files may start that could not before; it
    starts them later.
    """

    def __init__(
        self,
        config: Config,
        session: HttpSession,
        schedule: Scheduler[FetchTask],
        hosts: HostFailures,
        places: Places,
        fail: Callable[[FetchTask, FetchError, int], None],
        wake: Callable[[], None],
    ) -> None:
        self._session = session
        self._schedule = schedule
        self._fail = fail
        self._wake = wake
        # A limit for files would make a failure of a robots.txt that is longer.
        self._pipelined = not config.max_size
        self._batch = _Batch(self._received, self._failed)
        # Rules, and until when they hold. (TLRUCache takes seven times as long for each file.)
        self._known: LRUCache[str, tuple[robots.Rules, float]] = LRUCache(_MAX_KEPT, _weight)
        self._held: dict[str, deque[FetchTask]] = {}
        # Compressed: whatever arrives is decoded.
        own = config.replace(
            **{"max_size": 0, "min_speed": 0, "redirects": robots.MAX_REDIRECTS},
            **{"compressed": True, "respect": (), "checksums": "off", "hash": ""},
        )
        self.client = RequestsClient(
            *(own, session, hosts.reserve_redirect, None, places), patient=False, stored=range(200, 300)
        )

    def admit(self, task: FetchTask) -> None:
        """Schedule ``task``, fail it, or hold it until the robots.txt of its origin is known."""
        rules = self._rules(task.origin.key)
        if rules is None:
            self.hold(task, task.origin)
        else:
            self._decide(task, rules)

    def admit_all(self, tasks: list[FetchTask]) -> None:
        """Admit ``tasks``, all of one origin."""
        rules = self._rules(tasks[0].origin.key)
        if rules is robots.ALLOW_ALL:
            self._schedule.add_all(tasks)
            return
        pause = Pauses()
        for task in tasks:
            self.admit(task)
            pause()

    def hold(self, task: FetchTask, origin: Origin) -> None:
        """Hold ``task`` until the robots.txt of ``origin``, its own or a redirect's, is known."""
        if self._rules(origin.key) is not None:
            self._schedule.add(task)
            return
        held = self._held.get(origin.key)
        if held is None:
            held = self._held[origin.key] = deque()
            self._request(origin)
        held.append(task)
        self._schedule.hold(task)

    def withdraw(self, key: str, wanted: Callable[[FetchTask], bool]) -> list[FetchTask]:
        """Remove and return the ``wanted`` files that wait for the robots.txt of host ``key``.

        They stay on hold.
        """
        held = self._held.get(key)
        if not held:
            return []
        files = [task for task in held if wanted(task)]
        if files:
            gone = set(map(id, files))
            rest = [task for task in held if id(task) not in gone]
            held.clear()
            held.extend(rest)
        return files

    def allows(self, task: FetchTask) -> bool:
        """Return whether ``task`` may be requested, as far as that is known."""
        rules = self._rules(task.origin.key)
        return rules is not None and not rules.why_not(task.target.decode("ascii"))

    def permit(self, url: str, origin: Origin) -> bool:
        """Return whether a redirect to ``url`` may be followed; False if the robots.txt is not known yet.

        Raises FetchError ``robots``.
        """
        rules = self._rules(origin.key)
        if rules is not None and (why := rules.why_not(self._session.target(url).decode("ascii"))):
            raise FetchError("robots", why)
        return rules is not None

    def _rules(self, key: str) -> robots.Rules | None:
        """Return the rules of origin ``key``, None if they are not known, or not any more."""
        known = self._known.get(key)
        return known[0] if known is not None and monotonic() < known[1] else None

    def _request(self, origin: Origin) -> None:
        # A proxy is sent the whole URL, in the form in which a request for a file has it.
        default_port = ":80" if origin.key.startswith("http:") else ":443"
        url = f"{origin.key.removesuffix(default_port)}/robots.txt"
        host = self._schedule.host(origin.key)
        host.unknown = True
        path = origin if self._pipelined else None
        item = Item(origin.key, url)
        self._schedule.add(
            FetchTask(
                self._batch,
                *(0, item, False, url, b"/robots.txt"),
                *(origin, host, False, path),
                robots_txt=True,
            )
        )
        if not origin.proxy:
            self._session.resolver.look_up_ahead(origin.host)

    def _received(self, key: str, body: bytes) -> None:
        if len(body) > _LONG:
            gevent.spawn(self._parse, key, body)  # the caller is in the hub
        else:
            self._learn(key, robots.parse(body, self._session.product_token))

    def _parse(self, key: str, body: bytes) -> None:
        self._learn(key, in_thread(robots.parse, body, self._session.product_token))

    def _failed(self, key: str, error: FetchError, attempts: int) -> None:
        if isinstance(error, _Enough):
            self._received(key, error.body)
            return
        outcome = robots.Outcome.FAIL  # without an attempt: the host was given up before
        if attempts:
            outcome = robots.outcome_of(error.code, elsewhere=error.origin not in ("", key))
        if outcome is robots.Outcome.ALLOW:
            # A host that was given up for this answer, 429, may still have the files.
            now = monotonic()
            self._schedule.succeeded(self._schedule.host(key), now, now)
            self._learn(key, robots.ALLOW_ALL)
        elif outcome is robots.Outcome.REFUSE:
            self._learn(key, robots.unreachable(str(error)))
        else:

            def fail(task: FetchTask) -> None:
                self._fail(task, error, attempts)

            self._release(key, fail)

    def _learn(self, key: str, rules: robots.Rules) -> None:
        self._known[key] = rules, monotonic() + rules.lifetime

        def decide(task: FetchTask) -> None:
            if task.origin.key == key:
                self._decide(task, rules)
            else:
                self._schedule.add(task)  # it was redirected here: now it can be

        self._release(key, decide)

    def _decide(self, task: FetchTask, rules: robots.Rules) -> None:
        if why := rules.why_not(task.target.decode("ascii")):
            self._fail(task, FetchError("robots", why), task.attempts)
        else:
            self._schedule.add(task)

    def _release(self, key: str, decide: Callable[[FetchTask], None]) -> None:
        """Let nothing wait for the robots.txt of host ``key``; ``decide`` each of what has waited."""
        self._schedule.host(key).unknown = False
        self._decide_each(self._held.pop(key), decide)

    def _decide_each(self, held: deque[FetchTask], decide: Callable[[FetchTask], None]) -> None:
        """Take ``held`` off hold and ``decide`` each of them, in the background where that takes long."""
        until = monotonic() + BUSY
        while held:
            task = held.popleft()
            self._schedule.hold(task, -1)
            decide(task)
            if monotonic() > until:
                gevent.spawn_later(0.001, self._decide_each, held, decide)
                break
        self._wake()


def _weight(known: tuple[robots.Rules, float]) -> int:
    # The cache refuses what is larger than all of it.
    return min(max(known[0].size, _MAX_KEPT // _MAX_ORIGINS), _MAX_KEPT)


class _Enough(FetchError):
    """More than ``robots.MAX_SIZE`` bytes have arrived: ``body`` are the first of them."""

    def __init__(self, body: bytes) -> None:
        super().__init__("too-large")
        self.body = body


class _Batch:
    """The batch of all robots.txt: a ``TaskBatch``, and what else the worker calls. It never finishes."""

    def __init__(
        self, received: Callable[[str, bytes], None], failed: Callable[[str, FetchError, int], None]
    ) -> None:
        self._received = received
        self._failed = failed
        self.marks = ItemStates(1)
        self.states = self.marks.arrays[0]
        self.latency = Histogram()
        self.left = 1
        self.requests = self.pipelined = self.retries = 0

    def forget(self, index: int) -> None:
        """Do nothing: no ledger has it."""

    def attempt_failed(self, code: str) -> None:
        """Do nothing: only attempts at files are reported."""

    def unverified(self) -> None:
        """Do nothing: it is not stored."""

    encoded = unverified

    def failed(self, index: int, item: Item, url: str, error: FetchError, attempts: int) -> None:
        """Record that a robots.txt was not received."""
        self._failed(item.name, error, attempts)

    def put_all(self, responses: Iterable[tuple[FetchTask, object]]) -> tuple[int, Exception | None]:
        """See ``TaskBatch``."""
        count = 0
        for task, body in responses:
            if not isinstance(body, (bytes, bytearray)) or task.batch is not self:
                break
            self._received(task.item.name, bytes(body))
            count += 1
        return count, None

    def open(self, task: FetchTask) -> FileWriter:
        """See ``TaskBatch``."""
        return _Writer(task.item.name, self._received)

    def publish(self, task: FetchTask, writer: CheckedWriter) -> int:
        """See ``TaskBatch``."""
        return writer.publish()

    def published(
        self, index: int, size: int, crc: int, how: int, requests: int = 0, pipelined: int = 0
    ) -> None:
        """Do nothing: it is not stored."""


class _Writer:
    """A ``FileWriter`` that keeps a robots.txt in memory. Raises _Enough when it has MAX_SIZE bytes."""

    def __init__(self, key: str, received: Callable[[str, bytes], None]) -> None:
        self._key = key
        self._received = received
        self._body = bytearray()
        self.size = self.crc = 0

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self._body += chunk
        self.size = len(self._body)
        if len(self._body) > robots.MAX_SIZE:
            raise _Enough(bytes(self._body[: robots.MAX_SIZE + 1]))

    def publish(self) -> int:
        self._received(self._key, bytes(self._body))
        return NEW

    def abort(self) -> None:
        self._body = bytearray()
