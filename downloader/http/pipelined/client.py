"""The wire lane: small files at little more than what the wire costs.

The requests session stays the authority: urllib3 writes one request of its own for each origin, and
those bytes are the template of all; urllib3's connection object opens and verifies each connection,
and the census counts it. What is left here is to send the template with other targets, several at a
time where that pays (``core.pipeline_depth``), and to let llhttp read the answers
(``connection``, ``parser``).

Only a plain 200 whose length is vouched for is stored here. An error status is a failure with its code;
any other answer is handed over: the requests lane asks again, and does what a user of requests expects.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from itertools import islice  # noqa: E402
from time import monotonic, thread_time  # noqa: E402
from typing import Any, Protocol  # noqa: E402

import gevent  # noqa: E402
from gevent.pool import Group  # noqa: E402

from downloader.config.config import Config  # noqa: E402
from downloader.core import pipeline_depth as depths  # noqa: E402
from downloader.core.item_states import UNTOUCHED  # noqa: E402
from downloader.core.scheduler import Host  # noqa: E402
from downloader.core.throughput import Pace  # noqa: E402
from downloader.core.units import show_time  # noqa: E402
from downloader.errors import DestinationError, FetchError  # noqa: E402
from downloader.http.exceptions import translate  # noqa: E402
from downloader.http.pipelined.commit_queue import Turns  # noqa: E402
from downloader.http.pipelined.connection import Pipeline  # noqa: E402
from downloader.http.pipelined.origin_state import Route, Stored  # noqa: E402
from downloader.http.pipelined.parser import Body, HandOver, let_go  # noqa: E402
from downloader.http.pipelined.transport import BUFFER  # noqa: E402
from downloader.http.requests_client import too_late, too_slow  # noqa: E402
from downloader.http.session import LaneSession, Origin  # noqa: E402
from downloader.sinks import Sink, Writer  # noqa: E402
from downloader.worker.active_batch import Job, OpenBatch  # noqa: E402

__all__ = ["Owner", "WireLane"]

_SWEEP = 0.25
# So many answers in a row that were not for this lane, and it leaves the origin alone.
_MISFITS = 3
_AHEAD = 256  # files, as long as connections are used for one request at a time
# What all connections together may hold back until they are known to be in step.
_HELD, _HELD_BYTES = 32 << 10, 16 << 20
_LARGEST_WINDOW, _LEAST_WINDOW = 512, 16


class Owner(Protocol):
    """What the lane asks of the worker that it belongs to; all of it at once, without waiting."""

    def more(self, host: Host, origin: Origin, most: int) -> list[Job]:
        """Up to ``most`` jobs of ``host`` and ``origin`` that need no slot of their own."""

    def finished(self, batch: OpenBatch) -> None:
        """The last of ``batch`` has come to its end."""

    def failed(self, job: Job, error: FetchError, began: float) -> None:
        """An attempt at ``job``, sent at ``began``, has failed."""

    def hand_over(self, job: Job) -> None:
        """``job`` is for the requests lane."""

    def again(self, jobs: list[Job]) -> None:
        """These were sent and not answered, and that was not their fault."""

    def release(self, host: Host) -> None:
        """A slot of ``host`` is free."""

    def answered(self, host: Host) -> None:
        """``host`` answers as it should."""

    def lost(self, error: Exception) -> None:
        """The worker cannot go on: the destination failed, or this is a defect."""


class WireLane:
    """Fetches over connections of its own, which ``session`` describes, into ``sink``.

    ``depths``: how many requests were sent at which depth. ``appetite``: how many files should wait to be
    asked for, so that no connection has to.
    """

    def __init__(self, config: Config, session: LaneSession, sink: Sink, owner: Owner) -> None:
        self._config = config
        self._session = session
        self._sink = sink
        self._owner = owner
        self.secrets = config.secrets
        self.max_size = config.max_size
        self.buffer = memoryview(bytearray(BUFFER))
        self.window = min(max(_HELD // config.connections, _LEAST_WINDOW), _LARGEST_WINDOW)
        self.window_bytes = max(_HELD_BYTES // config.connections, BUFFER // 4)
        self.depths: dict[int, int] = {}
        self.appetite = max(config.connections, _AHEAD)
        self._fresh: list[tuple[Job, Body]] = []
        self._routes: dict[Origin, Route] = {}
        self._stored_so_far = Stored()
        self._busy: set[Pipeline] = set()
        self._opening = Group()
        self._enabled = config.lane == "auto" and not config.compressed
        self._depth = depths.fixed(config.pipeline) if config.pipeline else depths.Depth()
        if config.rate:
            self._depth = depths.shut(self._depth, "--rate")
        self.lost = owner.lost
        self.turns = Turns(owner.lost)
        self.release = owner.release

    def takes(self, origin: Origin) -> bool:
        """Whether a file of ``origin`` may go this way: without cookies."""
        if not (self._enabled and origin.plain) or origin.jar is not None:
            return False
        route = self._routes.get(origin)
        return route is None or route.misfits < _MISFITS

    def begin(self, job: Job) -> None:
        """Fetch ``job``, which has a slot of its host, and others with it while there are any."""
        route = self._routes.get(job.origin) or self._add_route(job.origin)
        while route.idle:
            pipe = route.idle.pop()
            self._session.census.idle.pop(pipe, None)
            if pipe.usable():
                self._busy.add(pipe)
                pipe.start(job)
                return
            pipe.close()
        self._opening.start(gevent.Greenlet(self._open, route, job))

    def stops(self) -> dict[str, int]:
        """Why connections are not used deeper, and for how many origins."""
        found: dict[str, int] = {}
        for route in self._routes.values():
            why = route.depth.stopped or "the end of the job"
            found[why] = found.get(why, 0) + 1
        return found

    def sweep(self) -> None:
        """End what has been silent or has taken too long; one greenlet for all connections."""
        silence, limit = self._config.read_timeout, self._config.deadline
        pause = min(_SWEEP, silence / 4, limit / 4)
        silent = f"nothing came for --read-timeout {show_time(silence)}"
        while True:
            gevent.sleep(pause)
            now = monotonic()
            for pipe in [each for each in self._busy if each.reader.outstanding]:
                if now - pipe.since > limit:
                    pipe.fail(too_late(self._config))
                elif now - max(pipe.heard, pipe.since) > silence:
                    pipe.fail(FetchError("read-timeout", silent))
                elif pipe.pace and pipe.pace.too_slow(now, pipe.since, pipe.reader.progress):
                    pipe.fail(too_slow(self._config))

    def abandon(self) -> None:
        """The worker stops: store what is known to be in step, and give back the rest."""
        self.flush()
        self.turns.take_all()
        self._opening.kill()
        for pipe in list(self._busy):
            pipe.abandon()

    # what a pipeline asks

    def pace(self) -> Pace | None:
        """What measures its bodies under --min-speed."""
        return Pace(self._config.min_speed) if self._config.min_speed else None

    def more(self, pipe: Pipeline, most: int) -> list[Job]:
        """Jobs that ``pipe`` may ask for next."""
        route = pipe.route
        if pipe.slot is None or route.misfits >= _MISFITS or route.origin.jar is not None:
            return []
        jobs = self._owner.more(pipe.slot, route.origin, most)
        if not jobs:
            route.starved()
        return jobs

    def deeper(self, depth: int) -> None:
        """An origin is used at ``depth`` from now on: so much should be ready to be asked for."""
        self.appetite = max(self.appetite, min(depth * self._config.connections, _HELD))

    def idle(self, pipe: Pipeline) -> None:
        """``pipe`` has nothing to do."""
        slot, pipe.slot = pipe.slot, None
        self._busy.discard(pipe)
        pipe.route.idle.append(pipe)
        self._session.census.idle[pipe] = None
        if slot is not None:
            self._owner.release(slot)

    def forget(self, pipe: Pipeline) -> None:
        """``pipe`` is being closed."""
        self._busy.discard(pipe)
        self._session.census.idle.pop(pipe, None)
        if pipe in pipe.route.idle:
            pipe.route.idle.remove(pipe)

    def again(self, jobs: list[Job]) -> None:
        """See ``Owner``."""
        if jobs:
            self._owner.again(jobs)

    def deliver(self, job: Job, body: Body) -> None:
        """The body of a file that is in step: stored when all connections that had something were
        read, and asked for more. Then the servers work while we store, and the code that stores stays
        in the CPU's cache. A suspect's is stored at once: if that kills us, nothing else is in flight."""
        if job.solo:
            self.settle(None, [(job, body)])
            return
        if not self._fresh:
            gevent.get_hub().loop.run_callback(self.flush)
        self._fresh.append((job, body))

    def flush(self) -> None:
        """Store what was delivered and waits for that."""
        held, self._fresh = self._fresh, []
        try:
            self.settle(None, held)
        except Exception as error:
            self.lost(error)

    def settle(self, route: Route | None, held: list[tuple[Job, Body]]) -> None:
        """What came of these, from ``route``: store what is a file."""
        began, stored = thread_time(), self._stored_so_far
        self._settle(route, held)
        stored.files += len(held)
        stored.seconds += thread_time() - began

    def _settle(self, route: Route | None, held: list[tuple[Job, Body]]) -> None:
        at, last = 0, len(held)
        while at < last:
            job, body = held[at]
            if type(body) is bytes and job.size < 0:
                count, problem = job.batch.put_all(self._sink, islice(held, at, None))
                at += count
                if count:
                    self._stored(job, route)
                if problem is None:
                    continue
                job, body = held[at][0], problem
            at += 1
            try:
                if isinstance(body, HandOver):
                    if route is not None:
                        route.misfits += 1
                    self._owner.hand_over(job)
                    continue
                if isinstance(body, Exception):
                    raise body
                self._store(job, body)
            except FetchError as error:
                error.wire = 1
                self._owner.failed(job, error, job.sent)
            except DestinationError as error:
                for _, rest in islice(held, at, None):
                    let_go(rest)
                self._owner.lost(error)
                return
            else:
                self._stored(job, route)

    def _stored(self, job: Job, route: Route | None) -> None:
        """``job`` is, and perhaps others of its batch and host."""
        if not job.batch.left:
            self._owner.finished(job.batch)
        self._owner.answered(job.host)
        if route is not None:
            route.misfits = 0

    def _store(self, job: Job, body: bytes | bytearray | Writer) -> None:
        if isinstance(body, (bytes, bytearray)):
            writer: Writer = self.open_writer(job)
            try:
                writer.write(body)
            except BaseException:
                writer.abort()
                raise
        else:
            writer = body
        try:
            if job.size >= 0 and writer.size != job.size:
                text = f"{writer.size} bytes arrived, the source says {job.size}"
                raise FetchError("size-mismatch", text)
            how = job.batch.publish(job.index, writer)
            job.batch.published(job.index, writer.size, writer.crc, how, 1, 1)
        finally:
            writer.abort()

    def open_writer(self, job: Job) -> Writer:
        """Where the body of ``job`` goes, piece by piece. Raises FetchError, DestinationError."""
        batch, index = job.batch, job.index
        return self._sink.open(job.name, batch.seq, index, batch.claims.get(index, UNTOUCHED))

    # connections

    def _open(self, route: Route, job: Job) -> None:
        owner, host, began = self._owner, job.host, job.sent
        try:
            pipe = Pipeline(self, route, self._connect(route))
        except FetchError as error:
            owner.failed(job, error, began)
            owner.release(host)
        except gevent.GreenletExit:
            owner.again([job])
            owner.release(host)
        except Exception as error:
            owner.lost(error)
        else:
            self._busy.add(pipe)
            pipe.start(job, alone=job.solo or not route.trusted)

    def _connect(self, route: Route) -> Any:
        made = self._session.new_connection(route.origin)
        try:
            with gevent.Timeout(self._config.deadline, too_late(self._config)):
                made.connect()
        except Exception as error:
            made.close()
            failed = translate(error, self.secrets)
            failed.wire = 1
            raise failed from error
        except BaseException:
            made.close()
            raise
        return made

    def _add_route(self, origin: Origin) -> Route:
        if len(self._routes) > 1000:
            for old in [each for each, route in self._routes.items() if not route.idle]:
                del self._routes[old]
        depth = depths.shut(self._depth, "an HTTP proxy") if origin.forwarded else self._depth
        template = self._session.template(origin)
        route = self._routes[origin] = Route(origin, template, depth, self._stored_so_far)
        return route
