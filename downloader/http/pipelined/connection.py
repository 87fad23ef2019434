"""One connection of the wire lane: requests out, answers in, and whether the two are still in step.

Nothing in HTTP/1.1 says which request an answer belongs to but the order. A server that gives one answer
too many shifts all that follow by one, and each of them looks right. So while more than one request is
in flight, what has been answered is held back in memory, a window at a time, and stored only when the
connection is known to be in step: all that was asked is answered, and then nothing more comes for as long
as the slowest answer took; then it stands in line to store them (``commit_queue``). Where something does
come, or the connection ends before, the whole window is fetched again. With one request at a time what
comes behind an answer closes the connection.

No greenlet belongs to it: a watcher calls ``_readable``, which reads, parses and sends the next requests.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import ssl  # noqa: E402  (only in a patched process)
from itertools import islice  # noqa: E402
from time import monotonic  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from downloader.core.item_states import IN_FLIGHT  # noqa: E402
from downloader.core.scheduler import Host  # noqa: E402
from downloader.errors import DestinationError, FetchError  # noqa: E402
from downloader.http.exceptions import translate  # noqa: E402
from downloader.http.pipelined.origin_state import Route  # noqa: E402
from downloader.http.pipelined.parser import Body, Reader, let_go  # noqa: E402
from downloader.http.pipelined.transport import LEAST_REST, MUCH, Blocked, Stream  # noqa: E402
from downloader.sinks import Writer  # noqa: E402
from downloader.worker.active_batch import Job, OpenBatch  # noqa: E402

if TYPE_CHECKING:
    from downloader.http.pipelined.client import WireLane

__all__ = ["Pipeline"]

# So many times the depth are asked for before a connection rests, and so many at least; how long at most.
_WINDOW, _LEAST, _LONGEST_REST = 8, 256, 5.0


class Pipeline:
    """See the module. ``slot``: the host whose slot of the schedule it uses, None while it is idle."""

    __slots__ = (
        "_counted",
        "_deep",
        "_held_bytes",
        "_lane",
        "_slowest",
        "_stream",
        "_window",
        "heard",
        "key",
        "max_size",
        "pace",
        "reader",
        "route",
        "sent",
        "served",
        "since",
        "slot",
        "usable",
    )

    def __init__(self, lane: WireLane, route: Route, connection: Any) -> None:
        self._lane = lane
        self.route = route
        self._stream = Stream(connection, lane.buffer, self._readable, lane.lost)
        self.key = connection.key
        self.usable = self._stream.usable
        self.max_size = lane.max_size
        self.pace = lane.pace()
        self.reader = Reader(self, route.shapes)
        self.slot: Host | None = None
        self.sent = self.served = 0
        self.since = self.heard = self._slowest = 0.0
        self._deep = False
        self._window = self._counted = self._held_bytes = 0

    # requests

    def start(self, job: Job, *, alone: bool = True) -> None:
        """Begin with ``job``, whose slot is ours from now on; not ``alone``: and with others."""
        self.slot, began = job.host, job.sent
        now = self.heard = monotonic()
        others = 0 if alone else self._room(1, 1)
        self._ask([job, *self._lane.more(self, others)] if others > 0 else [job], now, now)
        job.sent = began

    def _ask(self, jobs: list[Job], now: float, began: float) -> None:
        reader, route = self.reader, self.route
        outstanding = reader.outstanding
        if not outstanding:
            self.since = now
        self.sent += len(jobs)
        self._window += len(jobs)
        for job in jobs:
            job.sent = began
            job.batch.states[job.index] = IN_FLIGHT
        outstanding.extend(jobs)
        self._deep = self._deep or len(outstanding) > 1
        depth, depths = route.depth.now, self._lane.depths
        if depth not in depths:
            depths[depth] = 0
            self._lane.deeper(depth)
        depths[depth] += len(jobs)
        self._stream.send(route.requests([job.target for job in jobs]))

    # answers

    def _readable(self) -> None:
        if self.slot is None:
            self.close()  # idle: most often a server that says it has waited long enough
            return
        reader, stream, outstanding = self.reader, self._stream, self.reader.outstanding
        while True:
            try:
                count = stream.receive(self._deep)
            except Blocked:
                return
            except ssl.SSLZeroReturnError:
                count = 0
            except OSError as error:
                self._ended(translate(error, self._lane.secrets))
                return
            if not count:
                self._ended(None)
                return
            if not outstanding:
                self._out_of_step()
                return
            now = self.heard = monotonic()
            reader.feed(self._lane.buffer[:count])
            if count >= MUCH and outstanding:
                stream.acknowledge()
            # The last may be answers for nobody (see ``large``); what is held is stored all the same.
            if reader.problem or reader.surplus or len(reader.held) > self._counted or not outstanding:
                self._settle(now)
                if self.slot is None or reader.problem is not None:
                    return
            if not stream.pending():
                return

    def _settle(self, now: float) -> None:
        """Answers are complete, or something is wrong with one."""
        reader = self.reader
        held = reader.held
        if (
            len(held) == 1
            and not (self._deep or reader.surplus or reader.mid or reader.closing)
            and not isinstance(held[0][1], Exception)
            and reader.problem is None
            and self.served
        ):
            self._one(held.pop(), now)
            return
        if len(held) > self._counted:
            self._count(now, len(held) - self._counted)
        if reader.surplus or (reader.mid and not reader.outstanding):
            self._out_of_step()
            return
        if not self._deep and held:
            self._confirm()
        if reader.problem is not None:
            self.fail(reader.problem)
            return
        if reader.closing:
            self._closing()
            return
        self._go_on(now)

    def _one(self, answer: tuple[Job, Body], now: float) -> None:
        """What nearly every answer is where one request is in flight at a time, with less ado."""
        job, body = answer
        latency = now - job.sent
        job.batch.latency.add(latency)
        self.served += 1
        self.since = now
        self._window = 0
        self.route.misfits = 0
        self.route.answered(now, 1, latency)
        self._lane.deliver(job, body)
        self._go_on(now)

    def _count(self, now: float, fresh: int) -> None:
        """Latencies of what has just been answered; requests sent together are counted together."""
        reader, size = self.reader, 0
        held = reader.held
        for job, body in islice(held, self._counted, None):
            if type(body) is bytes:
                size += len(body)
                if job.size >= 0 and job.size != len(body) and self._deep:
                    reader.surplus = True  # this one's size, or one that belongs to another
            elif isinstance(body, FetchError):
                self._window = self._lane.window  # see what it means before more is asked
        self._held_bytes += size
        first, last = held[self._counted][0], held[-1][0]
        if first.sent is last.sent and first.batch is last.batch:
            self._took(now - last.sent, last.batch, fresh)
        else:
            for job, _ in islice(held, self._counted, None):
                self._took(now - job.sent, job.batch, 1)
        self._counted = len(held)
        if not self.served:
            self._stream.proven()
            if self.reader.parser.get_http_version() == "1.0":
                self.route.shut("HTTP/1.0")
        self.served += fresh
        self.since = now
        self.route.answered(now, fresh, self._slowest)

    def _took(self, latency: float, batch: OpenBatch, answers: int) -> None:
        batch.latency.add(latency, answers)
        if latency > self._slowest:
            self._slowest = latency

    def _room(self, waiting: int, first: int = 0) -> int:
        """How many more may be asked for where so many are, ``first`` of them not sent yet; 0: none.

        What a server closes after is asked for alone, once all before it is in step. With it in the window,
        one answer too many would be made up for by the one that the close leaves out.
        """
        depth, limit = self.route.depth.now, self.route.limit
        room = depth - waiting
        if self._deep or depth > 1:
            room = min(room, min(self._lane.window, max(depth * _WINDOW, _LEAST)) - self._window - first)
            room = room if self._held_bytes < self._lane.window_bytes else 0
            limit = self.route.last(self.sent - self._window)
        if not limit:
            return room
        left = limit - self.sent - first
        alone = left == 1 and not (self._deep or waiting)
        return min(room, left if alone else left - 1)

    def _go_on(self, now: float) -> None:
        """Ask for more, or rest, or be idle."""
        route, lane = self.route, self._lane
        waiting = len(self.reader.outstanding)
        room = self._room(waiting) if waiting * 2 <= route.depth.now else 0
        if room > 0 and (jobs := lane.more(self, room)):
            self._ask(jobs, now, now)
            return
        if waiting:
            return
        spent = bool(route.limit) and self.sent >= route.limit
        if self.reader.held or (spent and not route.single):
            self._stream.acknowledge()
            lane.turns.rest(self, min(max(self._slowest, LEAST_REST), _LONGEST_REST))
        elif spent:
            self.end()
        else:
            lane.idle(self)

    def turn(self) -> int:
        """See ``turns.Taker``. Nothing has come since all was answered; or has it, and we were slow?"""
        if not self.usable():
            self._readable()
            if self.slot is None or self.reader.outstanding:
                return 0
        stored = len(self.reader.held)
        self._confirm()
        if self.route.limit and self.sent >= self.route.limit and not self.route.single:
            self.route.limit = 0  # it was for another reason that the server closed
        self._go_on(monotonic())
        return stored

    def _confirm(self) -> None:
        """In step: what is held is what was asked for."""
        held, self.reader.held = self.reader.held, []
        self.route.trusted = self.route.trusted or self._deep
        self._deep = False
        self._window = self._counted = self._held_bytes = 0
        self._slowest = 0.0
        self._lane.settle(self.route, held)

    # ends

    def _closing(self) -> None:
        """The server has closed, or says that it does. In a window a request may be unanswered though all
        seem to be, if there was an answer too many: see ``Route.closes_early``."""
        if self._deep:
            self.route.closes_early(self.served)
            self.abandon()
        else:
            self._confirm()
            self.route.closes(self.served)
            self.end()

    def _ended(self, error: FetchError | None) -> None:
        """The connection is at its end."""
        reader, route = self.reader, self.route
        if not reader.outstanding:
            if error is None:
                self._closing()
            else:
                self.abandon()
            return
        if error is None and isinstance(reader.body, FetchError):
            reader.finish()  # the page of an error, which ends with the connection
            self._closing()
            return
        error = error or reader.cut()
        if self.served and not reader.mid and not reader.answered:
            route.broke_at(self.served)
            first = reader.outstanding[0]
            # It had served before, and nothing of the next answer came: nothing was refused, the first
            # time; nor the second, where this is how we learn that the server answers no more.
            spared = 2 if route.limit == self.served else 1
            if first is None or first.cut_off < spared:
                if first:
                    first.cut_off += 1
                route.broke()
                self.abandon()
                return
        self.fail(error)

    def fail(self, problem: Exception) -> None:
        """The answer that was being read fails; what is behind it is asked again; the connection ends."""
        reader, lane = self.reader, self._lane
        reader.discard()
        behind = reader.take()
        first = behind.pop(0) if behind else None
        if self._deep and isinstance(problem, FetchError) and problem.code.startswith("http-"):
            # Whose answer that was is not known yet.
            self.route.broke()
            behind.insert(0, first)
            first = None
        elif behind:
            self.route.broke()
        self._unconfirmed()
        self._give_back(behind)
        if first is not None:
            lane.settle(self.route, [(first, problem)])
        elif isinstance(problem, DestinationError):
            lane.lost(problem)
        self.end()

    def _out_of_step(self) -> None:
        """Bytes that nobody asked for."""
        self.route.out_of_step()
        if not self._deep:
            self._confirm()
        self.abandon()

    def _unconfirmed(self) -> None:
        """What is held may be another's: it is asked for again."""
        held, self.reader.held = self.reader.held, []
        self._counted = 0
        for _, body in held:
            let_go(body)
        self._give_back([job for job, _ in held])

    def _give_back(self, jobs: list[Job | None] | list[Job]) -> None:
        self._lane.again([job for job in jobs if job is not None])

    def end(self) -> None:
        """Close, and give the slot back."""
        slot, self.slot = self.slot, None
        self.close()
        if slot is not None:
            self._lane.release(slot)

    def abandon(self) -> None:
        """Close; what has been asked for and not been stored is given back."""
        self.reader.discard()
        self._give_back(self.reader.take())
        self._unconfirmed()
        self.end()

    # what the reader asks

    def large(self, job: Job, length: int) -> Writer:
        """See ``reading.Limits``. Nothing shall wait behind a large body, or for it."""
        outstanding = self.reader.outstanding
        if len(outstanding) > 1 or self.reader.held:
            self._unconfirmed()
            behind = self.reader.take()[1:]
            self._give_back(behind)
            outstanding.append(job)
            outstanding.extend([None] * len(behind))
        self.route.large()
        self._stream.widen(length)
        return self._lane.open_writer(job)

    def proxied(self) -> None:
        """See ``reading.Limits``."""
        self.route.shut("a proxy is in the path (Via)")

    def close(self) -> None:
        """Also called by the census, when room is needed for another."""
        self._lane.turns.leave(self)
        self._lane.forget(self)
        self._stream.close(abruptly=bool(self.reader.outstanding))
