"""Fetch small plain files over pipelined connections, at little more than the cost of their bytes.

The requests session defines requests and connections: urllib3 writes one request for each origin, which
serves as the template of all others; urllib3's connection object opens and verifies each connection, and
the connection budget counts it. This client sends the template with other targets, several at a time if
that pays (``core.pipeline_depth``), and parses the responses (``parser``).

Only a plain 200 with a known length is stored here. An error status is a failure with its code. For any
other response, the requests client repeats the request and does what a user of requests expects.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Callable
from functools import partial
from itertools import islice
from time import monotonic, thread_time

import gevent
from gevent.pool import Group

from downloader.config.config import Config
from downloader.core import pipeline_depth as depths
from downloader.core.host import Host
from downloader.core.pipeline_window import room_in_window
from downloader.core.throughput import Pace
from downloader.core.units import show_time
from downloader.errors import DestinationError, FetchError
from downloader.http.connection_pool import UrllibConnection
from downloader.http.exceptions import (
    Preempted,
    below_min_speed,
    deadline_exceeded,
    translate,
)
from downloader.http.origin import NOT_THERE, Origin
from downloader.http.pipelined.commit_queue import CommitQueue
from downloader.http.pipelined.connection import PipelinedConnection
from downloader.http.pipelined.header_shape import HeaderShape
from downloader.http.pipelined.interfaces import Owner
from downloader.http.pipelined.observing_parser import Observed, ObservingParser
from downloader.http.pipelined.origin_depths import OriginDepths
from downloader.http.pipelined.origin_state import OriginState, StorageCost
from downloader.http.pipelined.parser import (
    Body,
    NeedsRequestsClient,
    ResponseParser,
    discard_body,
)
from downloader.http.pipelined.transport import BUFFER
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask, open_writer, publish_prepared
from downloader.messages import Receiving
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import Unprepared

__all__ = ["PipelinedClient"]

_SWEEP = 0.25
# After so many responses in a row that need the requests client, an origin is left to it.
_MAX_FALLBACKS = 3
# How often a task may be requested in vain without an attempt that is charged. That is as many windows as
# are fetched again before it is known that their order cannot be checked.
_MAX_UNCHARGED = 8
_READY = 256  # tasks to keep ready while connections have one request in flight at a time
# Where there are so many origins, so many tasks: those of one host are found together, and its name is
# looked up, before they are due.
_MANY_ORIGINS, _READY_OF_MANY = 64, 16384
# Seconds that a connection goes on with the tasks of its host although other hosts wait, at least and at
# most; in between, four times what it took to open. To open another one costs more than many requests.
_STAY, _LONGEST_STAY = 0.3, 2.0
# Maximum number of responses, and of their bytes, that all connections together hold in memory until
# they are known to be in step.
_HELD, _HELD_BYTES = 32 << 10, 16 << 20
_MAX_WINDOW, _MIN_WINDOW = 512, 16
_MAX_ORIGINS = 1000
# Failures that the body of another file causes.
_CONTRADICTIONS = ("size-mismatch", "checksum-mismatch")
# Seconds between two looks at the connections that hold responses at the end, and seconds that these may
# take longer than expected.
_LOOK, _OVERDUE = 0.05, 1.0
# Seconds between two looks for what nobody asked for at the end, and seconds until the last look.
_LOOK_OFTEN, _LAST_LOOK = 0.002, 1.0


class PipelinedClient:
    """A client that fetches tasks over connections of ``session`` and stores the files in their batches.

    ``owner``: see ``interfaces``. ``connections``: see ``resize``. ``recording``: the sink wants
    to know what the response says about each file.

    ``depths``: number of requests sent, by depth. ``ready_target``: number of tasks to keep ready, so that
    no connection has to wait for one. ``origin_depths``: the depths of its origins. ``waiting``: the tasks
    that wait for a connection, by the greenlet that opens it.
    """

    def __init__(
        self, config: Config, session: HttpSession, owner: Owner, connections: int, *, recording: bool
    ) -> None:
        self._config = config
        self._session = session
        self._cookies = session.kept_cookies
        self._checking = config.checking
        token = session.product_token if config.respect else None
        observed = Observed(recording or config.recording, recording, config.checksums == "all", token)
        self.new_parser: Callable[..., ResponseParser] = ResponseParser
        if observed != Observed():
            echoes = config.echoes
            observed = observed._replace(echoes=echoes, credentials=echoes.has_any)
            self.new_parser = partial(ObservingParser, observed=observed)
        self._owner = owner
        self.budget = session.budget
        self.secrets = config.secrets
        self.cacert = config.cacert
        self.max_size = config.max_size
        self.verifies = config.checksums != "off"
        self.buffer = memoryview(bytearray(BUFFER))
        self.depths: dict[int, int] = {}
        self.ready_target = _READY
        self._deepest = 1
        self._fresh: list[tuple[FetchTask, Body]] = []
        self._origins: dict[Origin, OriginState] = {}
        self.resize(connections)
        self._forget_at = _MAX_ORIGINS
        self._idle: dict[OriginState, list[PipelinedConnection]] = {}
        self._busy: set[PipelinedConnection] = set()
        self.origin_depths = OriginDepths(self._origins, self._busy)
        self._opening = Group()
        self._storing = Group()  # files that take long to publish; they need no connection any more
        self.waiting: dict[gevent.Greenlet, FetchTask] = {}
        self._storage_cost = StorageCost()
        self._shapes: dict[tuple[bytes, ...], HeaderShape] = {}
        self._enabled = config.lane == "auto" and not config.compressed
        self._depth = depths.fixed(config.pipeline) if config.pipeline else depths.Depth()
        if config.rate:
            self._depth = depths.shut(self._depth, "--rate")
        self.fatal = owner.fatal
        self.release = owner.release
        self.demote = owner.demote
        self.moved = owner.moved
        self.commit_queue = CommitQueue(owner.fatal)

    def resize(self, connections: int) -> None:
        """Use as many as ``connections`` at once from now on: they share the memory for responses."""
        self.connections = connections
        self.window = min(max(_HELD // connections, _MIN_WINDOW), _MAX_WINDOW)
        self.window_bytes = max(_HELD_BYTES // connections, BUFFER // 4)
        self.depth_reached(self._deepest)
        for state in self._origins.values():
            state.restart_measurement()

    @property
    def stored_together(self) -> int:
        """Return how many files a connection stores at a time, at most."""
        deepest = self.origin_depths.deepest
        return room_in_window(deepest, self.window, 0) if deepest > 1 else 1

    @property
    def held(self) -> int:
        """Return the number of responses that were received and are not stored yet."""
        return sum(each.held for each in self._busy)

    @property
    def ends_windows(self) -> bool:
        """Return whether connections have windows from a greater depth, and send nothing meanwhile."""
        return any(each.ends_window for each in self._busy)

    def in_flight(self, state: OriginState) -> int:
        """Return the number of requests to the origin of ``state`` that have no response yet."""
        return sum(len(each.parser.outstanding) for each in self._busy if each.origin_state is state)

    def accepts(self, origin: Origin) -> bool:
        """Return whether files of ``origin`` may be fetched here: not, for example, with cookies."""
        if not (self._enabled and origin.plain) or (self._cookies.changes and origin.sends_cookies):
            return False
        state = self._origins.get(origin)
        return state is None or state.fallback_count < _MAX_FALLBACKS

    def fetch(self, task: FetchTask) -> None:
        """Start to fetch ``task``, which has a slot of its host; further tasks follow in the same slot."""
        try:
            state = self._origins.get(task.origin) or self._add_origin(task.origin)
        except Exception as error:
            # What urllib3 does not take, of an origin that we do: of this file only.
            self._owner.attempt_failed(task, translate(error, self.secrets, self.cacert), task.sent)
            self._owner.release(task.host)
            return
        if task.is_retry:
            self._session.sends_again(task.origin)
        idle = self._idle[state]
        while idle:
            connection = idle.pop()
            self._session.budget.idle.pop(connection, None)
            if connection.usable():
                self._busy.add(connection)
                connection.start(task)
                return
            connection.close()
        self._opening.start(gevent.Greenlet(self._open, state, task))

    def sweep(self) -> None:
        """End connections that are silent, too slow, or past the deadline, in one greenlet for all."""
        silence, limit = self._config.read_timeout, self._config.deadline
        pause = min(_SWEEP, silence / 4, limit / 4)
        late = partial(deadline_exceeded, self._config)
        silent = f"nothing came for --read-timeout {show_time(silence)}"
        while True:
            gevent.sleep(pause)
            now = monotonic()
            self._session.budget.end_overdue(limit, late)
            for connection in self.awaiting:
                since, pace = connection.since, connection.pace
                if now - since > limit:
                    connection.fail(deadline_exceeded(self._config))
                elif now - max(connection.last_received, since) > silence:
                    connection.fail(FetchError("read-timeout", silent))
                elif pace and pace.too_slow(now, since, connection.parser.progress):
                    connection.fail(below_min_speed(self._config))

    @property
    def awaiting(self) -> list[PipelinedConnection]:
        """Return the connections that wait for a response."""
        return [each for each in self._busy if each.parser.outstanding]

    def receives(self, host: Host, since: float) -> bool:
        """Return whether a connection to ``host`` has received something after ``since``, or is idle."""
        if any(each.slot is host and each.last_received > since for each in self._busy):
            return True
        return any(idle and state.origin.key == host.key for state, idle in self._idle.items())

    def serving(self, host: Host) -> int:
        """Return how many connections to ``host`` have brought a file, or bring their first one."""
        busy = sum(each.slot is host and each.is_served for each in self._busy)
        return busy + sum(len(idle) for state, idle in self._idle.items() if state.origin.key == host.key)

    def serves_since(self, host: Host, since: float) -> bool:
        """Return whether ``host`` sends a file requested after ``since``, or one is not stored yet."""
        return any(  # what is fresh has come just now
            task.host is host and not isinstance(body, Exception) for task, body in self._fresh
        ) or any(each.slot is host and each.serves_since(since) for each in self._busy)

    @property
    def receiving(self) -> Receiving:
        """Return what has arrived of the bodies of unfinished files."""
        parsers = [each.parser for each in self.awaiting]
        arrived = [parser.progress for parser in parsers if parser.progress]
        missing = [parser.missing for parser in parsers if parser.missing]
        return Receiving(sum(arrived), len(arrived), sum(missing), len(missing))

    def await_held(self, deadline: float) -> None:
        """Wait until what has arrived is stored, if it can be in step by ``deadline``.

        Nothing more is to be sent meanwhile. Not waited for is a connection whose responses come later
        than they can be expected.
        """
        while (now := monotonic()) < deadline:
            expected = [each.storable for each in self._busy]
            held = any(soonest <= deadline and now - _OVERDUE < latest for soonest, latest in expected)
            if not held and not self._storing:
                return
            gevent.sleep(_LOOK)

    def requeue_outstanding(self) -> None:
        """Store responses that are known to be in step, requeue the rest, and close all connections."""
        self.flush()
        self.commit_queue.commit_all()
        self._opening.kill(timeout=1)
        self._storing.kill(timeout=1)
        for connection in list(self._busy):
            connection.requeue_outstanding()

    def await_surplus(self) -> None:
        """Wait for responses that nobody asked for, on connections that have had one request at a time.

        Nothing more is sent on them, and servers are told so: they close, behind what is still to come. It
        is not waited long for those that do not.
        """
        awaited = [each for idle in self._idle.values() for each in idle if each.may_be_shifted]
        for connection in awaited:
            connection.end_sending()
        deadline = monotonic() + _LAST_LOOK
        while (awaited := [each for each in awaited if not each.is_closed]) and monotonic() < deadline:
            gevent.sleep(_LOOK_OFTEN)

    # called by connections; see ``interfaces.ConnectionOwner``

    def new_pace(self) -> Pace | None:
        """Return the measurement for --min-speed of a new connection, None without --min-speed."""
        return Pace(self._config.min_speed) if self._config.min_speed else None

    def next_tasks(self, connection: PipelinedConnection, most: int) -> list[FetchTask]:
        """Return up to ``most`` tasks that ``connection`` may send next."""
        state = connection.origin_state
        if (
            connection.slot is None
            or state.fallback_count >= _MAX_FALLBACKS
            or (self._cookies.changes and state.origin.sends_cookies)
            or connection.refuses  # another one may be idle: see ``fetch``
            or len(self._storing.greenlets) >= self.connections  # each has a file open
        ):
            return []
        stay = monotonic() - connection.began < connection.stay
        tasks = self._owner.next_tasks(connection.slot, state.origin, most, stay=stay)
        if not tasks:
            state.record_starvation(most)
        return tasks

    def requested_again(self, tasks: list[FetchTask]) -> None:
        """Count one more request for each of ``tasks``."""
        self._owner.requested_again(tasks)

    def host_serves(self, host: Host) -> None:
        """Tell that one more connection to ``host`` has brought a file."""
        self._owner.host_serves(host)

    def out_of_order(self, host: str, files: int) -> None:
        """Tell that ``host`` answers out of order, so that ``files`` stored files may be wrong."""
        self._owner.out_of_order(host, files)

    def distrust(self, host: str) -> None:
        """Store nothing more of ``host`` that is pipelined, since another worker has found disorder."""
        for origin, state in self._origins.items():
            if origin.key == host and (files := state.distrust()):
                self.out_of_order(host, files)

    def depth_reached(self, depth: int) -> None:
        """Keep enough tasks ready for ``depth``, which an origin uses from now on."""
        self._deepest = max(self._deepest, depth)
        self.ready_target = max(self.ready_target, min(self._deepest * self.connections, _HELD))

    def idle(self, connection: PipelinedConnection) -> None:
        """Take back ``connection``, which has nothing to do, and free its slot."""
        slot, connection.slot = connection.slot, None
        self._busy.discard(connection)
        idle = self._idle.get(connection.origin_state)
        crowded = slot is not None and not slot.queue and slot.crowded_until > monotonic()
        if idle is None or crowded:
            # Its origin was dropped, so it cannot be reused; or another worker waits for a connection.
            connection.close()
        else:
            # One that refuses is used after all that do not.
            idle.insert(0 if connection.refuses else len(idle), connection)
            self._session.budget.idle[connection] = None
        if slot is not None:
            connection.origin_state.connection_stopped(monotonic())
            self._owner.release(slot)

    def forget(self, connection: PipelinedConnection) -> None:
        """Remove ``connection``, which is being closed."""
        self.commit_queue.remove(connection)
        self._busy.discard(connection)
        self._session.budget.idle.pop(connection, None)
        idle = self._idle.get(connection.origin_state, [])
        if connection in idle:
            idle.remove(connection)

    def requeue(self, tasks: list[FetchTask]) -> None:
        """Queue unanswered ``tasks`` again without charging an attempt.

        Of one that this client requests again and again, the requests client does so, and charges it:
        nothing that a server does may make a file be requested for ever.
        """
        spent = False
        for task in tasks:
            task.uncharged += 1
            if task.uncharged > _MAX_UNCHARGED:
                task.path, spent = None, True
        if spent and (state := self._origins.get(tasks[0].origin)) is not None:
            state.fallback_count += 1
        if tasks:
            self._owner.requeue(tasks)

    def deliver(self, task: FetchTask, body: Body) -> None:
        """Store ``body`` after all connections with data have been read and have sent further requests.

        So servers work while the worker stores, and the code that stores stays in the CPU's cache. The
        body of a suspect is stored at once: if that kills the worker, nothing else is in flight.
        """
        if task.solo:
            self.store_completed(None, [(task, body)])
            return
        if not self._fresh:
            gevent.get_hub().loop.run_callback(self.flush)
        self._fresh.append((task, body))

    def flush(self) -> None:
        """Store the delivered bodies."""
        fresh, self._fresh = self._fresh, []
        try:
            self.store_completed(None, fresh)
        except Exception as error:
            self.fatal(error)

    def store_completed(self, state: OriginState | None, completed: list[tuple[FetchTask, Body]]) -> None:
        """Store the files among ``completed``, from the origin of ``state``; report failures."""
        began, cost = thread_time(), self._storage_cost
        self._store_completed(state, completed)
        cost.files += len(completed)
        cost.seconds += thread_time() - began

    def _store_completed(self, state: OriginState | None, completed: list[tuple[FetchTask, Body]]) -> None:
        at, last = 0, len(completed)
        while at < last:
            task, body = completed[at]
            if (type(body) is bytes or type(body) is bytearray) and not task.promised:
                count, problem = task.batch.put_all(islice(completed, at, None))
                at += count
                if count:
                    self._stored(task, state, count)
                if problem is None:
                    continue
                # The group itself may have failed, behind its last response.
                task, body = completed[min(at, last - 1)]
                body = body if isinstance(problem, Unprepared) else problem
            at += 1
            try:
                if isinstance(body, NeedsRequestsClient):
                    if state is not None:
                        state.fallback_count += 1
                    self._owner.fall_back(task)
                    continue
                if isinstance(body, Exception):
                    raise body
                self._store(state, task, body)
            except FetchError as error:
                self._failed(state, task, error)
            except DestinationError as error:
                for _, rest in islice(completed, at, None):
                    discard_body(rest)
                self._owner.fatal(error)
                return

    def _failed(self, state: OriginState | None, task: FetchTask, error: FetchError) -> None:
        """Report that the response to ``task`` is no file."""
        # Where files are served without their cookies, pages in the place of files need none either.
        needless = error.code in NOT_THERE and (task.origin.serves or task.robots_txt)
        if error.sets_cookie and not needless and error.sets_cookie not in task.origin.vain_cookies:
            if error.code in NOT_THERE and not task.uncharged:
                self.requeue([task])  # by then it is known whether files need a cookie
            else:
                self._owner.fall_back(task, error)
            return
        error.pipelined = 1
        if state is not None and error.code in _CONTRADICTIONS:
            state.contradicted()
        if error.answered and self._cookies.changes:
            # One may have come while the response was under way, or held.
            url = f"{task.origin.key}{task.target.decode('ascii')}"
            self._session.note_cookies(error, task.origin, url, "")
        self._owner.attempt_failed(task, error, task.sent)

    def _stored(self, task: FetchTask, state: OriginState | None, count: int = 1) -> None:
        """Report that ``count`` tasks of the batch and host of ``task`` are stored."""
        self._end_batch(task)
        self._succeeded(task, state, count)

    def _end_batch(self, task: FetchTask) -> None:
        """Report the batch of ``task`` if all of it is stored or has failed."""
        if not task.batch.left:
            self._owner.batch_finished(task.batch)

    def _succeeded(self, task: FetchTask, state: OriginState | None, count: int = 1) -> None:
        """Record that the host of ``task`` has sent ``count`` files."""
        task.origin.serves = True
        self._owner.host_succeeded(task.host, task.sent, count, again=task.attempts > 0)
        if state is not None:
            state.fallback_count = 0

    def _store(
        self, state: OriginState | None, task: FetchTask, body: bytes | bytearray | CheckedWriter
    ) -> None:
        """Store ``body`` and report that; in a greenlet, if it takes long."""
        writer = self.open_writer(task) if isinstance(body, (bytes, bytearray)) else body
        later = False
        try:
            if isinstance(body, (bytes, bytearray)):
                writer.write(body)
            how = task.batch.publish(task, writer)
            task.batch.published(task.index, writer.size, writer.crc, how, 1, 1)
        except Unprepared:
            later = True
            self._succeeded(task, state)  # whether it is stored, and when, says nothing about its host
            # No more is fetched than can be stored.
            self._owner.occupy(task.host)
            self._storing.spawn(self._store_later, task, writer)
        finally:
            if not later:
                writer.abort()
        if not later:
            self._stored(task, state)

    def _store_later(self, task: FetchTask, writer: CheckedWriter) -> None:
        owner = self._owner
        try:
            how = publish_prepared(task, writer)
            task.batch.published(task.index, writer.size, writer.crc, how, 1, 1)
        except FetchError as error:
            error.pipelined = 1
            owner.attempt_failed(task, error, task.sent)
        except gevent.GreenletExit:
            owner.requeue([task])
        except Exception as error:
            owner.fatal(error)
        else:
            self._end_batch(task)
        finally:
            writer.abort()
            owner.release(task.host)

    def open_writer(self, task: FetchTask, length: int = 0) -> CheckedWriter:
        """See ``task.open_writer``."""
        return open_writer(task, self._checking, length)

    # connections

    def _open(self, state: OriginState, task: FetchTask) -> None:
        owner, host, began = self._owner, task.host, task.sent
        waiting_for, greenlet = self._session.budget.waiting_for, gevent.getcurrent()
        waiting_for[greenlet], self.waiting[greenlet] = host, task
        try:
            began_opening = monotonic()
            connection = PipelinedConnection(self, state, self._connect(state))
            connection.stay = min(max(_STAY, 4 * (monotonic() - began_opening)), _LONGEST_STAY)
        except FetchError as error:
            owner.attempt_failed(task, error, began)
            owner.release(host)
        except Preempted:
            owner.demote(task)
            owner.release(host)
        except gevent.GreenletExit:
            owner.requeue([task])
            owner.release(host)
        except Exception as error:
            owner.fatal(error)
        else:
            self._busy.add(connection)
            connection.start(task, alone=task.solo or task.demotions > 0 or not state.trusted)
        finally:
            del waiting_for[greenlet], self.waiting[greenlet]

    def _connect(self, state: OriginState) -> UrllibConnection:
        made = self._session.new_connection(state.origin)
        try:
            made.connect()
        except Exception as error:
            made.close()
            failed = translate(error, self.secrets, self.cacert)
            failed.pipelined = 1
            raise failed from error
        except BaseException:
            made.close()
            raise
        return made

    def _add_origin(self, origin: Origin) -> OriginState:
        if len(self._origins) > self._forget_at:
            for old in [each for each, state in self._origins.items() if not self._idle[state]]:
                del self._idle[self._origins.pop(old)]
            self._forget_at = max(_MAX_ORIGINS, 2 * len(self._origins))
        if len(self._origins) > _MANY_ORIGINS:
            self.ready_target = max(self.ready_target, _READY_OF_MANY)
        depth = depths.shut(self._depth, "an HTTP proxy") if origin.forwarded else self._depth
        template = self._session.template(origin)
        state = self._origins[origin] = OriginState(
            origin, template, depth, self._storage_cost, self._shapes, self
        )
        self._idle[state] = []
        return state
