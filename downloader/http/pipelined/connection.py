"""Send requests and receive responses on one pipelined connection, and check that they stay in step.

In HTTP/1.1 only the order determines which request a response belongs to. If a server sends one response
too many, all that follow are shifted, and each of them looks right. So while more than one request is in
flight, complete responses are held in memory, a window at a time. They are stored only when the connection
is known to be in step and in order: some of them, requested again, are the same (see ``recheck``). Where
that does not show that none was too many, nothing more may arrive for as long as the slowest response took.
Then the connection joins the ``commit_queue``. If something does arrive, or the connection ends before
that, the window is fetched again. With one request in flight, any further data closes it.

A connection has no greenlet: a watcher calls ``_readable``, which reads, parses, and sends the next
requests. A method whose docstring says that it may close the connection may leave it without a slot.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import contextlib
import math
import ssl
from time import monotonic

from downloader.core.host import Host
from downloader.core.item_states import IN_FLIGHT
from downloader.core.lone_responses import LoneResponses, Received
from downloader.core.pipeline_order import (
    UNCHECKED,
    Verdict,
    asking,
    is_repeatable,
    recheck_size,
    room_before_recheck,
)
from downloader.core.pipeline_window import long_rest, room
from downloader.core.spent_connections import RefusalRun
from downloader.core.state_machine import transition
from downloader.errors import DestinationError, FetchError
from downloader.http.connection_pool import UrllibConnection
from downloader.http.exceptions import IDLE_TIMEOUT, translate
from downloader.http.pipelined import connection_state as states
from downloader.http.pipelined.connection_state import ConnectionEvent as Event
from downloader.http.pipelined.interfaces import ConnectionOwner
from downloader.http.pipelined.origin_state import OriginState
from downloader.http.pipelined.parser import Body, NeedsRequestsClient, discard_body
from downloader.http.pipelined.recheck import Recheck
from downloader.http.pipelined.transport import (
    ACKNOWLEDGED_AT_ONCE,
    Blocked,
    Transport,
)
from downloader.http.pipelined.window import Window, is_ordinary
from downloader.http.task import FetchTask
from downloader.sinks.checked_writer import CheckedWriter

__all__ = ["PipelinedConnection"]

_LAST_READS = 4  # of what nobody asked for, at most


class PipelinedConnection:
    """A pipelined connection; see the module.

    ``slot``: the host whose slot it uses, None while it is idle. ``sent``, ``served``: number of requests
    and responses. ``began``: when it took the slot; ``stay``: seconds for which it may keep it although
    others wait; ``since``: when the wait for this response began; ``last_received``: when data last came.
    """

    __slots__ = (
        "_client",
        "_deep",
        "_good",
        "_lone",
        "_recheck",
        "_refusals",
        "_repeats",
        "_state",
        "_transport",
        "_window",
        "began",
        "key",
        "last_received",
        "max_size",
        "origin_state",
        "pace",
        "parser",
        "sent",
        "served",
        "since",
        "slot",
        "stay",
        "usable",
    )

    def __init__(
        self,
        client: ConnectionOwner[PipelinedConnection],
        origin_state: OriginState,
        connection: UrllibConnection,
    ) -> None:
        self._client = client
        self.origin_state = origin_state
        self._transport = Transport(connection, client.buffer, self._readable, client.fatal)
        self.key = connection.key
        self.usable = self._transport.usable
        self.max_size = client.max_size
        self.pace = client.new_pace()
        self.parser = client.new_parser(self, origin_state.shapes)
        self.slot: Host | None = None
        self.sent = self.served = 0
        self.since = self.last_received = self.began = self.stay = 0.0
        self._state, self._deep = states.ConnectionState.IDLE, False
        self._good = False  # a request has succeeded
        self._repeats = False  # the window is one file, to be requested again
        self._window = Window()
        self._lone = LoneResponses()
        self._refusals = RefusalRun(origin_state.patience, connection.address, connection.opened)
        self._recheck: Recheck | None = None

    def _enter(self, event: Event) -> None:
        self._state = transition(states.TRANSITIONS, self._state, event)
        self._deep = self._state in states.DEEP

    def start(self, task: FetchTask, *, alone: bool = True) -> None:
        """Send ``task`` and take over its slot; unless ``alone``, send further tasks with it."""
        self._enter(Event.START)
        self.slot, began = task.host, task.sent
        now = self.last_received = self.began = monotonic()
        self.origin_state.connection_started(now)
        others = 0 if alone else self._room(now, 1, 1)
        tasks = [task, *self._client.next_tasks(self, others)] if others > 0 else [task]
        self._send(tasks, now)
        task.sent = began

    def _send(self, tasks: list[FetchTask], now: float) -> None:
        parser, origin_state = self.parser, self.origin_state
        outstanding = parser.outstanding
        if not outstanding:
            self.since = now
        self.sent += len(tasks)
        window = self._window
        window.sent += len(tasks)
        window.last_sent = now
        for task in tasks:
            task.sent = now
            task.batch.states[task.index] = IN_FLIGHT
        outstanding.extend(tasks)
        depth, depths = origin_state.depth_of(self), self._client.depths
        if not self._deep and (len(outstanding) > 1 or (depth > 1 and self._begin_repeat(tasks[0]))):
            self._enter(Event.PIPELINE)
            window.began = now
        if depth not in depths:
            depths[depth] = 0
            self._client.depth_reached(depth)
        depths[depth] += len(tasks)
        self._transport.send(origin_state.requests(tasks))

    def _begin_repeat(self, task: FetchTask) -> bool:
        """Return whether to hold the one response that is awaited, and to request its file again.

        That is done until it is known whether several requests may be in flight.
        """
        self._repeats = self.origin_state.wants_repeats() and not task.robots_txt
        return self._repeats

    def _readable(self) -> None:
        """Read and process what has arrived; may close the connection."""
        if self.slot is None:
            self._end_idle()
            return
        parser, transport, outstanding = self.parser, self._transport, self.parser.outstanding
        while True:
            try:
                count = transport.receive(self._deep)
            except Blocked:
                self._no_data_came()
                return
            except ssl.SSLZeroReturnError:
                count = 0
            except OSError as error:
                self._on_end(translate(error, self._client.secrets, self._client.cacert))
                return
            if not count:
                self._on_end(None)
                return
            if not outstanding:
                parser.feed(self._client.buffer[:count])
                self._desynchronized()
                return
            now = self.last_received = monotonic()
            parser.feed(self._client.buffer[:count])
            if count >= ACKNOWLEDGED_AT_ONCE and outstanding:
                transport.acknowledge()
            # The last responses may be ones to discard (see ``large``); those before them are stored.
            fresh = len(parser.completed) > self._window.counted
            if parser.problem or parser.surplus or fresh or not outstanding:
                self._process(now)
                if self.slot is None or parser.problem is not None:
                    return
            if not transport.pending():
                return

    def _no_data_came(self) -> None:
        """Go on, where TLS had a message of its own and no data; may close the connection."""
        if not self.parser.outstanding and self._state is states.ConnectionState.SERVING:
            self._continue(monotonic())

    def _process(self, now: float) -> None:
        """Process complete responses, or an invalid one; may close the connection."""
        parser = self.parser
        completed = parser.completed
        if (
            len(completed) == 1
            and not (self._deep or parser.surplus or parser.in_message or parser.closing)
            and is_ordinary(completed[0][1])
            and parser.problem is None
            and self._good
        ):
            self._process_single(completed.pop(), now)
            return
        if self.served and self._is_idle_timeout():
            self._requeue_uncharged(completed[0][0])
            return
        if parser.closing:
            self._note_turned_away()
        if len(completed) > self._window.counted:
            self._count(now)
        if parser.surplus or (not parser.outstanding and (parser.in_message or parser.problem is not None)):
            self._desynchronized()
            return
        if not self._deep and completed:
            self._commit_window()
        if parser.problem is not None:
            self.fail(parser.problem)
            return
        if parser.closing:
            self._on_close()
            return
        self._continue(now)

    def _process_single(self, response: tuple[FetchTask, Body], now: float) -> None:
        """Process an ordinary response with one request in flight, on a cheaper path than ``_process``.

        It is delivered, also where it is a refusal: of all that has arrived, files and refusals are
        counted in this order, or the host would seem to refuse nearly everything for a moment.
        """
        task, body = response
        task.batch.latency.add(now - task.sent)
        self.served += 1
        self.since = now
        self._window.sent = 0
        self._lone.add(body)
        if isinstance(body, Exception):
            self._note_refusals([body], now, self.served - 1)
        else:
            self.origin_state.fallback_count = self._refusals.count = 0
        self.origin_state.record_responses(now, 1)
        self._client.deliver(task, body)
        self._continue(now)

    def _count(self, now: float) -> None:
        """Record the responses that are not counted yet."""
        window = self._window
        fresh = window.count(self.parser.completed, now)
        if now - self.since > window.gap:
            window.gap = now - self.since
        if window.shifted and self._deep:
            self.parser.surplus = True  # another size: this may be the response for another file
        if not self._good:
            for _, body in self.parser.completed:
                if not isinstance(body, Exception):
                    self._good = True
                    self._transport.succeeded()
                    if self.slot is not None:
                        self._client.host_serves(self.slot)
                    break
        if fresh and (window.failed or self._refusals.count):  # not where all are files, as nearly always
            self._note_refusals([body for _, body in self.parser.completed[-fresh:]], now, self.served)
        if not self.served:
            if self._good:
                self._refusals.began_well()
            self._transport.proven()
            if self.parser.parser.get_http_version() == "1.0":
                self.origin_state.disable_pipelining("HTTP/1.0")
        self.served += fresh
        self.since = now
        self.origin_state.record_responses(now, fresh)

    def _note_refusals(self, bodies: list[Body], now: float, before: int) -> None:
        """Record which of ``bodies``, which have come after ``before`` others, are refusals."""
        for at, body in enumerate(bodies, before):
            if isinstance(body, FetchError) and body.refuses:
                self._refusals.refused(now, at)
            else:
                self._refusals.ended()

    def _ends_spent(self) -> bool:
        """Close the connection if the host refuses on it what it grants elsewhere; return whether so."""
        if not self._refusals.count or self.slot is None or not self._refusals.is_spent(self.slot.answered):
            return False
        self._leave_machine()
        self.end()
        return True

    def _room(self, now: float, waiting: int, unsent: int = 0) -> int:
        """Return how many more requests may be sent ``now`` while ``waiting`` are in flight.

        ``unsent`` of these are about to be sent. The result is at most 0 if no request may be sent.
        """
        origin_state, client = self.origin_state, self._client
        depth, limit = origin_state.depth_within(self, client.window_bytes), origin_state.limit
        if self._repeats:
            return 0
        if depth > 1 and not (self._deep or is_repeatable(origin_state.order)):
            depth = 1
        free = depth - waiting
        if self._deep or depth > 1:
            # A connection whose trial of a depth has failed stores what it holds before it goes on.
            window = self._window
            over = self._deep and (origin_state.depth_of(self) == 1 or window.is_long(now))
            most = 0 if over else client.window
            committed = self.sent - window.sent
            if limit := origin_state.window_end(committed):
                most = min(most, room_before_recheck(origin_state.order, limit - committed))
            free = min(free, window.room(depth, most, client.window_bytes, unsent))
        return room(free, limit, self.sent + unsent, alone=not (self._deep or waiting))

    def _continue(self, now: float) -> None:
        """Send more requests, recheck the window, rest until it is committed, become idle, or close."""
        origin_state, client = self.origin_state, self._client
        waiting = len(self.parser.outstanding)
        if self._recheck is not None:
            if not waiting:
                self._rechecked(self._recheck, now)
            return
        # What is unread is surely too much: it is read next.
        if not (waiting or self._deep) and (self._transport.unread() or self._ends_spent()):
            return
        half_empty = waiting * 2 <= origin_state.depth_within(self, client.window_bytes)
        free = self._room(now, waiting) if half_empty else 0
        if free > 0 and (tasks := client.next_tasks(self, free)):
            self._send(tasks, now)
            return
        if waiting:
            return
        spent = bool(origin_state.limit) and self.sent >= origin_state.limit
        if self.parser.completed:
            self._enter(Event.RECHECK)
            held, self.parser.completed = self.parser.completed, []
            size = recheck_size(origin_state.order, len(held), self._window.slowest)
            if not self._repeats:
                origin_state.order = asking(origin_state.order, size)
            recheck = self._recheck = Recheck(held, size, single=self._repeats)
            if recheck.tasks:
                self._send_again(recheck.tasks, now)
            else:
                self._end_recheck(recheck, now)
        elif spent and not origin_state.no_keepalive:
            self._rest(Event.AWAIT_CLOSE, self._window.rest(now))
        elif spent:
            self.end()
        else:
            if self._deep:
                self._commit_window()  # of which every response was discarded
            self._enter(Event.FINISH)
            client.idle(self)

    def _rest(self, event: Event, seconds: float) -> None:
        """Wait until nothing more can be expected; the connection commits then."""
        self._enter(event)
        self._transport.acknowledge()
        if seconds:
            self._client.commit_queue.enqueue_after(self, seconds)
        else:
            self._client.commit_queue.enqueue(self)

    def _send_again(self, tasks: list[FetchTask], now: float) -> None:
        """Request the files of ``tasks``, which are held, again."""
        self.since = self._window.last_sent = now
        self.sent += len(tasks)
        self.parser.outstanding.extend(tasks)
        self._client.requested_again(tasks)
        self._transport.send(self.origin_state.requests(tasks))

    def _rechecked(self, recheck: Recheck, now: float) -> None:
        """Process the responses to all that was requested again."""
        self._window.count_recheck(now)
        answers, self.parser.completed = self.parser.completed, []
        self.served += len(answers)
        if recheck.answered(answers):
            self._send_again(recheck.tasks, now)
        else:
            self._end_recheck(recheck, now)

    def _end_recheck(self, recheck: Recheck, now: float) -> None:
        self.parser.completed = recheck.held
        seconds = 0.0 if recheck.in_step else self._window.rest(now)
        self._rest(Event.REST, long_rest(seconds) if seconds and recheck.single else seconds)

    @property
    def _is_rechecking(self) -> bool:
        return self._recheck is not None and self.parser.completed is not self._recheck.held

    def _abandon_recheck(self) -> bool:
        """Hold the window as before its recheck, if one is under way: it does not come to its end."""
        if self._recheck is None or not self._is_rechecking:
            return False
        recheck, self._recheck = self._recheck, None
        self.parser.discard()
        self.parser.take_outstanding()
        self.parser.completed = recheck.held
        self._judge(recheck.broken_off(self.origin_state.order), 0)
        if recheck.single:
            self._commit_window()
        return True

    @property
    def storable(self) -> tuple[float, float]:
        """When the held responses are expected to be in step, at the soonest and at the latest.

        Infinity if there are none. Until a recheck ends, its requests may wait for one another, or not.
        """
        window, waiting = self._window, len(self.parser.outstanding)
        if not self.parser.completed and self._recheck is None:
            return math.inf, math.inf
        if self._is_rechecking:
            soonest, last = window.last_sent + window.gap * waiting, window.answered_at
            return soonest, last + window.rest(last)
        last = window.answered_at if waiting else self.last_received
        last += window.rest(last)
        return (last, last) if self._recheck else (last + window.gap, last + window.slowest)

    @property
    def ends_window(self) -> bool:
        """Return whether it has a window from a greater depth, so that it sends nothing until that ends."""
        return self._deep and self.origin_state.depth_of(self) == 1

    @property
    def held(self) -> int:
        """Return the number of its responses that are not stored yet."""
        return len(self._held)

    @property
    def _held(self) -> list[tuple[FetchTask, Body]]:
        return self._recheck.held if self._recheck is not None else self.parser.completed

    def commit(self) -> int:
        """Store the window after the rest, and return the number of its responses.

        If data has arrived that is not read yet, it is read first, and the window may not be stored.
        """
        if not self.usable():
            self._readable()
            if self.slot is None or self.parser.outstanding:
                return 0
        stored = len(self.parser.completed)  # or requeued, which takes as long
        self._commit_window()
        origin_state = self.origin_state
        if origin_state.limit and self.sent >= origin_state.limit and not origin_state.no_keepalive:
            origin_state.limit = 0  # the server had closed for another reason
        self._continue(monotonic())
        return stored

    def _commit_window(self) -> None:
        """Store the held responses, since the connection is in step; of a window, if they are in order."""
        counted, held = self._window.counted, len(self.parser.completed)
        proven = self._deep and (not self._repeats or (self._recheck is not None and self._recheck.same))
        if self._deep and held and not self._in_order(0 if self._repeats else self._exchangeable()):
            self._discard_window()
            proven = False
        completed, self.parser.completed = self.parser.completed, []
        if self._window.limited:
            self.origin_state.limits_requests()
        deep = self._deep and not self._repeats
        for _, body in () if deep else completed:
            self._lone.add(body)
        if proven:
            self._lone.in_step()
        self.origin_state.record_window(counted, self._window.held_bytes, deep=deep)
        self._repeats = False
        self._enter(Event.COMMIT)
        self._window.clear()
        self._client.store_completed(self.origin_state, completed)

    def _exchangeable(self) -> int:
        """Return how many of the held files may have the body of another: none that a checksum verifies."""
        held = self.parser.completed
        if not self._client.verifies:
            return len(held)
        return len(held) - sum(1 for task, _ in held if task.item.checksum)

    def _in_order(self, count: int) -> bool:
        """Return whether to store the window, by its recheck; ``count`` of its files could be exchanged."""
        recheck, self._recheck = self._recheck, None
        if recheck is None:
            return self._repeats  # it was in flight alone
        return self._judge(recheck.verdict(self.origin_state.order), count)

    def _judge(self, verdict: Verdict, count: int) -> bool:
        """Act on ``verdict`` on a window, see ``_in_order``; return whether to store it."""
        doubtful = self.origin_state.window_judged(verdict, count)
        if doubtful is not None and self.slot is not None:
            self._client.out_of_order(self.slot.key, doubtful)
        return verdict.store

    def _on_close(self) -> None:
        """Close the connection after the server has closed it, or announced that it will.

        Within a window a request may be unanswered even though all seem to be answered: see
        ``OriginState.closes_early``.
        """
        if self._is_rechecking:
            self.served += len(self.parser.completed)
        if self._deep and not self._repeats:
            self.origin_state.closes_early(self.served)
            self.requeue_outstanding()
            return
        if self._recheck is not None and self._is_rechecking and not self.parser.outstanding:
            self._recheck.answered(self.parser.completed)
            self.parser.completed = self._recheck.held
        self._abandon_recheck()
        self._commit_window()
        self.origin_state.closes(self.served)
        self.end()

    def _on_end(self, error: FetchError | None) -> None:
        """Close the connection after it has ended, with ``error`` or, if that is None, in order."""
        parser, origin_state = self.parser, self.origin_state
        if self._is_rechecking:
            self._on_close()
            return
        if not parser.outstanding:
            if error is None:
                self._on_close()
            else:
                self.requeue_outstanding()
            return
        if parser.refusal is not None:
            parser.finish()  # its body ends with the connection, in whatever way
            if self._is_idle_timeout():
                self._requeue_uncharged(parser.completed[0][0])
                return
            self._note_turned_away()
            self._on_close()
            return
        error = error or parser.cut_error()
        if self.served and not parser.in_message and not parser.headers_complete:
            origin_state.broke_at(self.served)
            first = parser.outstanding[0]
            # The connection had served others, and no part of the next response arrived. No attempt is
            # charged the first time, nor the second time if that reveals the limit of the server.
            uncharged = 2 if origin_state.limit == self.served else 1
            if first is None or first.cut_off < uncharged:
                if first:
                    first.cut_off += 1
                origin_state.broke()
                self.requeue_outstanding()
                return
        has_any = self.served or parser.in_message or parser.headers_complete
        error.turned_away = error.code == "reset" and not has_any
        self.fail(error)

    @property
    def is_served(self) -> bool:
        """Return whether it has brought a file, or brings its first one."""
        return self._good or (self.parser.headers_complete and self.parser.refusal is None)

    def serves_since(self, since: float) -> bool:
        """Return whether a file requested after ``since`` has begun to arrive, and is not stored yet."""
        if any(task.sent >= since and not isinstance(body, Exception) for task, body in self._held):
            return True
        parser = self.parser
        first = parser.outstanding[0] if parser.headers_complete and parser.outstanding else None
        return first is not None and parser.refusal is None and first.sent >= since

    def _note_turned_away(self) -> None:
        """Note if the server, which ends the connection, has only said on it that it takes no more."""
        if not self.served and len(self.parser.completed) == 1:
            body = self.parser.completed[0][1]
            if isinstance(body, FetchError):
                body.turned_away = body.refuses

    def _is_idle_timeout(self) -> bool:
        """Return whether the one response is a 408 that was sent before the request arrived.

        Some servers send one before they close a connection that is idle, unrequested (RFC 9110 §15.5.9:
        HAProxy, load balancers). No attempt is charged for that the first time.
        """
        completed = self.parser.completed
        if self._deep or not self.served or len(completed) != 1:
            return False
        task, body = completed[0]
        return isinstance(body, FetchError) and body.code == IDLE_TIMEOUT and not task.cut_off

    def _requeue_uncharged(self, task: FetchTask) -> None:
        """Close the connection, which has ended while it was idle, and request ``task`` on another one."""
        task.cut_off += 1
        self.requeue_outstanding()

    def fail(self, problem: Exception) -> None:
        """Fail the response that is being received, requeue those behind it, and close the connection.

        Where its head has refused it, that is the failure, whatever else is wrong with it.
        """
        single = self._repeats
        if self._abandon_recheck():
            if not single:
                self.origin_state.disable_pipelining(UNCHECKED)
            self.requeue_outstanding()
            return
        parser, client = self.parser, self._client
        refusal = parser.refusal
        if isinstance(problem, FetchError):
            problem = refusal or problem
        parser.discard()
        behind = parser.take_outstanding()
        first = behind.pop(0) if behind else None
        if self._deep and not single and problem is refusal and isinstance(problem, FetchError):
            # It is not known yet which request this response belongs to.
            self.origin_state.broke()
            behind.insert(0, first)
            first = None
        elif behind:
            self.origin_state.broke()
        self._discard_window()
        self._requeue(behind)
        if first is not None:
            client.store_completed(self.origin_state, [(first, problem)])
        elif isinstance(problem, DestinationError):
            client.fatal(problem)
        self.end()

    def preempt(self) -> None:
        """Give up the response that is awaited, requeue those behind it, and close the connection."""
        if self._abandon_recheck():
            self.requeue_outstanding()
            return
        parser = self.parser
        parser.discard()
        first, *behind = parser.take_outstanding()
        if behind:
            self.origin_state.broke()
        self._discard_window()
        self._requeue(behind)
        if first is not None:
            self._client.demote(first)
        self.end()

    def _desynchronized(self) -> None:
        """Close the connection after a response without a request has arrived.

        Of several responses it is not known which was too many; so what is not stored yet is requested
        again. Only the first one of a connection, and one that came twice, are surely right.
        """
        self.origin_state.desynchronized()
        recheck, parser = self._recheck, self.parser
        self._tell_doubtful()
        if self._repeats or not self._deep:
            if recheck is not None and self._is_rechecking:
                if not parser.outstanding:
                    recheck.answered(parser.completed)
                parser.discard()
                parser.take_outstanding()
                parser.completed = recheck.held
            first = self.sent == (1 if recheck is None else 2)
            if first or (recheck is not None and recheck.same):
                self._commit_window()
            self._recheck = None
        self.requeue_outstanding()

    def _end_idle(self) -> None:
        """Close the idle connection: most often the server's keep-alive timeout has expired."""
        with contextlib.suppress(OSError):  # Blocked is one, too
            for _ in range(_LAST_READS):
                if not (count := self._transport.receive(False)):
                    break
                self.parser.feed(self._client.buffer[:count])
        if self.parser.in_message or self.parser.surplus:
            self._tell_doubtful()
        self.close()

    def _tell_doubtful(self) -> None:
        """Tell how many stored files may be those of other requests, since a response was too many."""
        parser, recheck = self.parser, self._recheck
        row: list[Received] = [*parser.completed]
        if recheck is not None:
            row = [*recheck.held, *recheck.received, *(row if self._is_rechecking else ())]
        whole = parser.extra is not None
        if files := self._lone.doubtful(row, parser.surplus_body, whole=whole):
            self._client.moved(self.origin_state.origin.key, files)

    def _discard_window(self) -> None:
        """Discard the held responses, which may belong to other requests, and requeue their tasks."""
        completed, self.parser.completed = self.parser.completed, []
        self._window.counted = 0
        for _, body in completed:
            discard_body(body)
        self._requeue([task for task, _ in completed])

    def _requeue(self, tasks: list[FetchTask | None] | list[FetchTask]) -> None:
        self._client.requeue([task for task in tasks if task is not None])

    def end(self) -> None:
        """Close the connection and free the slot."""
        slot, self.slot = self.slot, None
        self.close()
        if slot is not None:
            self.origin_state.connection_stopped(monotonic())
            self._client.release(slot)

    def requeue_outstanding(self) -> None:
        """Close the connection and requeue all tasks that were sent and are not stored."""
        self._abandon_recheck()
        self.parser.discard()
        self._requeue(self.parser.take_outstanding())
        self._discard_window()
        self.end()

    # called by the parser; see ``parser.ParserOwner``

    def large(self, task: FetchTask, length: int) -> CheckedWriter:
        """Return a writer for the large body of ``task``.

        Raises NeedsRequestsClient in a window: what is not held cannot be compared.
        """
        self.origin_state.large_body()
        if self._deep:
            raise NeedsRequestsClient
        self._transport.widen(length)
        return self._client.open_writer(task, length)

    def proxied(self) -> None:
        """Disable pipelining, since a response came through a proxy."""
        self.origin_state.disable_pipelining("a proxy is in the path (Via)")

    @property
    def refuses(self) -> bool:
        """Return whether its last request was refused."""
        return self._refusals.count > 0

    @property
    def is_untaken(self) -> bool:
        """Return whether the server's system has not acknowledged what was sent."""
        return self._transport.is_untaken

    @property
    def is_doubtful(self) -> bool:
        """See ``RefusalRun``."""
        return self._refusals.is_doubtful(self.served)

    @property
    def may_be_shifted(self) -> bool:
        """Return whether stored files may be those of others, were one more response to come."""
        return self._lone.count > 0

    @property
    def is_closed(self) -> bool:
        """Return whether it is closed."""
        return self._state is states.ConnectionState.CLOSED

    def end_sending(self) -> None:
        """Tell the server that no request follows; it may still send."""
        self._transport.end_sending()

    def leave(self) -> None:
        """Close the idle connection, whose machine is of no use now."""
        self._leave_machine()
        self.close()

    def _leave_machine(self) -> None:
        self._refusals.left(monotonic(), served=self._good)
        self._transport.failed()

    def close(self) -> None:
        """Close the socket. The connection budget also calls this, to make room for another connection."""
        self._enter(Event.CLOSE)
        self._client.forget(self)
        self._transport.close(abruptly=bool(self.parser.outstanding))
        self.parser.close()
