"""The pipelined client against a server whose connections misbehave as drawn, over real sockets: no file is
stored under another's name, each ends exactly once, nothing hangs, and only typed errors are raised."""

from __future__ import annotations

import gc
import struct
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import pytest
from budget import bounded, rounds
from gevent import socket
from gevent.event import Event
from gevent.server import StreamServer
from hypothesis import event, example, given
from hypothesis import strategies as st

from downloader.config.config import Config
from downloader.core.host import Host
from downloader.core.ownership import Rules
from downloader.core.pipeline_depth import DEEPEST, STEP, Depth
from downloader.core.pipeline_order import REPEATS, Order
from downloader.errors import FetchError
from downloader.files.directory import open_home
from downloader.http.origin import Origin
from downloader.http.pipelined.client import PipelinedClient
from downloader.http.pipelined.connection import PipelinedConnection
from downloader.http.pipelined.origin_depths import OriginDepths
from downloader.http.pipelined.origin_state import OriginState, StorageCost
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask, TaskBatch
from downloader.messages import Item, Lease
from downloader.sinks.registry import open_sink
from downloader.storage.ledger import Ledger
from downloader.worker.active_batch import ActiveBatch

COUNT = 40
ATTEMPTS = 60
LONGEST = 20.0  # seconds until an example counts as hung
NONE: frozenset[int] = frozenset()
LARGE = 100_000  # a large file repeats an ordinary file's content this often
IDLE = 0.01  # seconds without a request after which the server closes


def name(index: int) -> str:
    return f"file-{index}"


def body(index: int, large: bool = False) -> bytes:
    """Return the body of a file; every file has another length. ``large``: it is not kept whole, and
    nothing may wait for it."""
    return (b"<%d>" % index) * (LARGE if large else 1 + index * index % 97)


def answer(content: bytes, *lines: bytes, status: bytes = b"200 OK") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Length: %d" % len(content), *lines, b"", content])


def in_chunks(content: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"2\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (content[:2], len(content) - 2, content[2:])


# What a connection does in response to one request. SURPLUS steps send one response too many, MISSING steps
# one too few: both on one connection would be indistinguishable.
FAIR = (
    "right",
    "right",
    "right",
    "chunked",
    "padded",
    "interim",
    "hints",
    "last",
    "last-lingers",
    "404",
    "503",
    "moved",
    "gzip",
    "cookie",
)
ENDS = ("close", "reset", "half", "half-reset", "404-half", "no-length", "rubbish-only", "bad-chunk")
SURPLUS = ("twice", "and-404", "and-rubbish")
MISSING = ("nothing",)


def steps(*kinds: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """Draw some correct steps, then one of ``kinds``, and so on: so that there are responses to be
    shifted.
    """
    groups = st.tuples(st.integers(0, 6), st.sampled_from(sum(kinds, ())))
    return st.lists(groups, max_size=4).map(
        lambda drawn: [step for count, odd in drawn for step in (*["right"] * count, odd)]
    )


# Surplus three times, since few of the drawn steps are.
CONNECTION = st.tuples(
    steps(FAIR, ENDS, SURPLUS, SURPLUS, SURPLUS) | steps(FAIR, ENDS, MISSING),
    st.sampled_from([0, 0, 1, 7, 100]),  # bytes at a time; 0: all at once
)


@dataclass
class Script:
    """The server's behaviour, one connection after the other. ``asked``: requests per file; ``begun``: the
    number of requests with which each connection began; ``large``: the large files."""

    connections: list[tuple[list[str], int]]
    asked: Counter[int] = field(default_factory=Counter)
    begun: list[int] = field(default_factory=list)
    opened: int = 0
    patience: float = IDLE
    large: frozenset[int] = NONE
    gate: Event | None = None  # the second connection responds once it is set

    def __call__(self, sock: Any, _: object) -> None:
        number, self.opened = self.opened, self.opened + 1
        # When all are used up the server behaves well: every example ends.
        drawn, size = self.connections[number] if number < len(self.connections) else ([], 0)
        todo = iter(drawn)
        late, before, begins = b"", 0, True
        try:
            for index, is_last in requests(sock, self.patience):
                self.asked[index] += 1
                before += 1
                if begins and is_last:
                    self.begun.append(before)
                    begins = False
                step = next(todo, "right")
                if self.gate and number == 1:
                    assert self.gate.wait(LONGEST)
                reply, ends = carry_out(step, body(index, index in self.large))
                # A surplus response comes with the one before it, or at depth 1 it could not be detected.
                # What follows comes without a pause, or no depth could detect it: a connection does not
                # rest for ever.
                if late or step in SURPLUS:
                    late += reply
                    if is_last or ends:
                        sock.sendall(late)
                        late = b""
                else:
                    for piece in cut(reply, size and max(size, len(reply) // 400)):
                        sock.sendall(piece)
                        gevent.sleep(0)
                if ends:
                    if ends == "linger":  # as nginx does: closing with unread data resets the connection
                        sock.shutdown(socket.SHUT_WR)
                        while sock.recv(65536):
                            pass
                    elif ends == "reset":
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
        except OSError:
            pass  # the client left
        finally:
            sock.close()


def requests(sock: Any, patience: float) -> Iterator[tuple[int, bool]]:
    """Yield the requested files, and whether each is the last of those that have arrived."""
    data = b""
    while True:
        sock.settimeout(patience)
        try:
            got = sock.recv(65536)
        except TimeoutError:
            return
        if not got:
            return
        data += got
        *whole, data = data.split(b"\r\n\r\n")
        for place, head in enumerate(whole, 1):
            yield int(head.split(b" ")[1].rpartition(b"-")[2]), place == len(whole)


def carry_out(step: str, content: bytes) -> tuple[bytes, str]:
    """Return the bytes sent, and how the connection ends with them ("": it does not)."""
    right = answer(content)
    return {
        "right": (right, ""),
        "chunked": (in_chunks(content), ""),
        "padded": (in_chunks(content).replace(b"2\r\n", b"2 \t\r\n", 1), ""),
        "bad-chunk": (in_chunks(content)[:-7] + b"X", "linger"),
        "interim": (b"HTTP/1.1 100 Continue\r\n\r\n" + right, ""),
        "hints": (b"HTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\n" * 2 + right, ""),
        "last": (answer(content, b"Connection: close"), "close"),
        "last-lingers": (answer(content, b"Connection: close"), "linger"),
        "404": (answer(content, status=b"404 No"), ""),
        "503": (answer(content, b"Retry-After: 0", status=b"503 No"), ""),
        "moved": (answer(content, b"Location: /x", status=b"302 Found"), ""),
        "gzip": (answer(content, b"Content-Encoding: gzip"), ""),
        "cookie": (answer(content, b"Set-Cookie: a=b"), ""),
        "close": (b"", "close"),
        "reset": (b"", "reset"),
        "half": (right[: -len(right) // 3], "close"),
        "half-reset": (right[: -len(right) // 3], "reset"),
        "404-half": (answer(content, status=b"404 No")[:-1], "close"),
        "no-length": (b"HTTP/1.1 200 OK\r\n\r\n" + content, "close"),
        "rubbish-only": (b"rubbish\r\n", "close"),
        "twice": (right * 2, ""),
        "and-404": (right + answer(content, status=b"404 No"), ""),
        "and-rubbish": (right + b"rubbish", ""),
        "nothing": (b"", ""),
    }[step]


def cut(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size or len(data) or 1):
        yield data[start : start + (size or len(data))]


class Owner:
    """A worker reduced to what the pipelined client needs: jobs, slots, and the result of each job."""

    def __init__(self, jobs: list[FetchTask], most: int) -> None:
        self.queue = deque(jobs)
        self.most = most
        self.active = 0
        self.failures: list[tuple[FetchTask, FetchError]] = []
        self.attempts: list[str] = []
        self.handed: list[FetchTask] = []
        self.doubts: list[int] = []
        self.defect: BaseException | None = None
        self.lane: Any = None
        self.over = Event()

    def dispatch(self) -> None:
        while self.queue and self.active < self.most:
            self.active += 1
            self.lane.fetch(self.queue.popleft())
        if not self.queue and not self.active:
            self.over.set()

    def soon(self) -> None:
        gevent.get_hub().loop.run_callback(self.dispatch)

    def next_tasks(self, host: Host, origin: Origin, most: int, *, stay: bool) -> list[FetchTask]:
        return [self.queue.popleft() for _ in range(min(most, len(self.queue)))]

    def batch_finished(self, batch: TaskBatch) -> None:
        assert not batch.left

    def attempt_failed(self, job: FetchTask, error: FetchError, began: float) -> None:
        job.attempts += 1
        self.attempts.append(f"{job.item.name}: {error.code}")
        if job.attempts < ATTEMPTS and error.code != "http-404":
            self.requeue([job])
        else:
            self.failures.append((job, error))

    def fall_back(self, task: FetchTask, refused: FetchError | None = None) -> None:
        self.handed.append(task)

    def requeue(self, jobs: list[FetchTask]) -> None:
        self.queue.extendleft(reversed(jobs))
        self.soon()

    def requested_again(self, jobs: list[FetchTask]) -> None:
        pass

    def out_of_order(self, host: str, files: int) -> None:
        self.doubts.append(files)

    def moved(self, host: str, files: int) -> None:
        self.doubts.append(files)

    def demote(self, task: FetchTask) -> None:
        self.queue.append(task)
        self.soon()

    def occupy(self, host: Host) -> None:
        self.active += 1

    def release(self, host: Host) -> None:
        self.active -= 1
        assert self.active >= 0
        self.soon()

    def host_serves(self, host: Host) -> None:
        pass

    def host_succeeded(self, host: Host, began: float, count: int = 1, *, again: bool = False) -> None:
        pass

    def fatal(self, error: Exception) -> None:
        self.defect = self.defect or error
        self.over.set()


@contextmanager
def serving(script: Script) -> Iterator[str]:
    server = StreamServer(("127.0.0.1", 0), script)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.stop(timeout=0)


def in_order(state: OriginState) -> None:
    """Let it be known that the responses of ``state`` are in order."""
    state.order = Order(shown=1 << 20, repeated=REPEATS)


def run(
    script: Script,
    depth: int,
    connections: int,
    place: Path,
    make: type[Owner] = Owner,
    *,
    proven: bool = True,
) -> tuple[Owner, dict[str, bytes]]:
    """Fetch everything; return the results. ``proven``: the order of the responses is not checked."""
    output, ledger = place / "d", place / "ledger"
    output.mkdir()
    with serving(script) as url:
        config = Config(
            source=url, output=str(output), connections=connections, pipeline=depth, read_timeout=5.0
        )
        session, sink = HttpSession(config), open_sink(config, Rules())
        slot = Ledger(open_home(place) / ledger.name, 1).open(0, COUNT)
        batch = ActiveBatch(Lease(0, COUNT, b""), slot, sink)
        origin = session.origin(url)
        host = Host(origin.key, connections, connections)
        jobs = [
            FetchTask(
                batch, n, Item(each), False, "", b"/get/" + each.encode(), origin, host, False, origin
            )
            for n, each in enumerate(map(name, range(COUNT)))
        ]
        owner = make(jobs, connections)
        owner.lane = lane = PipelinedClient(config, session, owner, connections, recording=False)
        if proven:
            in_order(lane._add_origin(origin))
        sweeper = gevent.spawn(lane.sweep)
        try:
            owner.dispatch()
            assert owner.over.wait(LONGEST), f"it hangs: {owner.active} active, {len(owner.queue)} wait"
            lane.flush()
            if owner.queue:  # what the last flush gave back
                owner.over.clear()
                owner.dispatch()
                assert owner.over.wait(LONGEST)
        finally:
            sweeper.kill()
            lane.requeue_outstanding()
            for connections_idle in list(lane._idle.values()):
                for connection in list(connections_idle):
                    connection.close()
            sink.close()
        assert session.budget.open == 0, "a connection was not closed"
        settle(owner, batch, jobs)
        slot.free()
    files = {path.name: path.read_bytes() for path in output.iterdir()}
    return owner, files


def settle(owner: Owner, batch: ActiveBatch, jobs: list[FetchTask]) -> None:
    """Check that each job has ended exactly once."""
    assert owner.defect is None, repr(owner.defect)
    stored = [index for index, state in enumerate(batch.states) if state >= 2]
    others = [job.index for job in owner.handed] + [job.index for job, _ in owner.failures]
    assert sorted(stored + others) == list(range(COUNT)), (stored, others)
    assert batch.left == COUNT - len(stored)
    assert all(isinstance(error, FetchError) for _, error in owner.failures)


@bounded(12)
# Its kernel keeps the last response until we acknowledge.
@example([(["right", "right", "twice"], 0)], 2, 1, NONE, True)
# Two close after nine; then a surplus response makes nine of eight, and it closes.
@example(
    [(["right", "and-rubbish"], 0), ([], 0), ([], 0), (["right", "twice", *["right"] * 5, "last"], 0)],
    64, 1, NONE, True,
)  # fmt: skip
@example([(["right", "404-half"], 0)], 1, 1, NONE, True)
@example([(["right", "twice", "no-length"], 0)], 4, 1, NONE, True)
@example([(["right", "twice", "last"], 0)], 4, 1, NONE, True)  # it closes with requests unanswered
@example([([*["right"] * 3, "twice", *["right"] * 5], 0)] * 8, 4, 1, NONE, True)
@example([([*["right"] * 3, "nothing", *["right"] * 5], 7)] * 4, 64, 2, NONE, True)
@example([([*["right"] * 8, "close", "twice"], 7)] * 3, 16, 1, frozenset({2, 20}), True)
@given(
    st.lists(CONNECTION, max_size=8),
    st.sampled_from([0, 1, 2, 4, 64]),
    st.integers(1, 3),
    st.just(NONE) | st.frozensets(st.integers(0, COUNT - 1), max_size=2),
    st.booleans(),
)
def any_server(
    connections: list[tuple[list[str], int]], depth: int, many: int, large: frozenset[int], proven: bool
) -> None:
    script = Script(connections, large=large)
    with tempfile.TemporaryDirectory(prefix="fuzz-wire-") as place:
        owner, files = run(script, depth, many, Path(place), proven=proven)
    drawn = {step for each, _ in connections for step in each}
    for stored, content in files.items():
        index = int(stored.rpartition("-")[2])
        assert content == body(index, index in large), f"{stored} holds {len(content)}: {content[:20]!r}"
    handed, failed = {job.index for job in owner.handed}, {job.index for job, _ in owner.failures}
    assert set(files) == {name(n) for n in range(COUNT)} - {name(n) for n in handed | failed}
    assert not owner.failures or drawn & {"404", "404-half", "and-404"}
    # A job that got another's response may be handed over; the requests client then fetches it.
    assert all(script.asked[n] for n in range(COUNT) if n not in handed)
    event(f"{script.opened} connections")


def test_any_server() -> None:
    rounds(any_server)


def test_further_connections_begin_with_many_requests() -> None:
    """Once the requests sent together have been answered in step; and with no more than the server answers,
    which is known when two connections have closed with requests unanswered."""
    script = Script([([*["right"] * 9, "last-lingers"], 0)] * 4, patience=LONGEST)
    with tempfile.TemporaryDirectory(prefix="fuzz-wire-") as place:
        _, files = run(script, 4, 1, Path(place))
    assert files == {name(n): body(n) for n in range(COUNT)}
    assert script.begun == [1, 1, 1, 2, 2]
    assert script.opened == 5


def test_closed_connections_do_not_wait_for_the_garbage_collector() -> None:
    script = Script([([*["right"] * 9, "last-lingers"], 0)] * 4, patience=LONGEST)
    gc.collect()
    before = {id(each) for each in gc.get_objects()}
    gc.disable()
    try:
        with tempfile.TemporaryDirectory(prefix="fuzz-wire-") as place:
            run(script, 4, 1, Path(place))
        found = [each for each in gc.get_objects() if isinstance(each, PipelinedConnection)]
    finally:
        gc.enable()
    assert script.opened == 5
    assert sum(id(each) not in before for each in found) <= 1  # the last one may still be referred to


def test_item_that_reveals_the_connection_limit_has_not_failed() -> None:
    """Each connection is cut off after two responses. The first leaves 3 requests unanswered; the second,
    which has been answered once, sends 2, 3 and more, since it cannot be known yet that two are the limit.
    """
    gate = Event()

    class OneLess(Owner):
        """After the first connection that was cut off there is one less, and the second is answered."""

        def requeue(self, jobs: list[FetchTask]) -> None:
            super().requeue(jobs)
            self.most = 1
            gate.set()

    script = Script([(["right", "right", "close"], 0)] * COUNT, patience=LONGEST, gate=gate)
    with tempfile.TemporaryDirectory(prefix="fuzz-wire-") as place:
        owner, files = run(script, 4, 2, Path(place), OneLess)
    assert files == {name(n): body(n) for n in range(COUNT)}
    assert script.asked[3] == 3
    assert owner.attempts == []


class Connections:
    """Connections that always have 16 requests in flight."""

    def in_flight(self, state: OriginState) -> int:
        return 16


def origin_state(climbs: bool, stored: StorageCost) -> OriginState:
    url = "http://127.0.0.1:1"
    origin = HttpSession(Config(source=url, output="d")).origin(url)
    state = OriginState(origin, (b"", b""), Depth(), stored, {}, Connections())
    in_order(state)
    state.waits = climbs
    return state


@pytest.mark.parametrize(("stored", "depth"), [(4000, DEEPEST), (0, STEP)])
def test_depth_measurement_includes_storing(stored: int, depth: int) -> None:
    """Storing one takes a millisecond: eight times as many responses in the same time are no gain as long
    as they are not stored."""
    so_far, now = StorageCost(), 1000.0
    route = origin_state(False, so_far)
    # The first responses, and the first after the step, are not measured.
    for answered, files in ((16, 0), (500, 500), (16, 0), (4000, stored)):
        so_far.files += files
        so_far.seconds += files / 1000
        now += 0.5
        route.record_responses(now, answered)
    assert route.depth.now == depth


@pytest.mark.parametrize(
    ("seconds", "climbs", "depth"), [(2, True, 1), (2, False, STEP), (0.5, True, STEP)]
)
def test_slow_responses_are_pipelined_after_connections_were_added(
    seconds: float, climbs: bool, depth: int
) -> None:
    route = origin_state(climbs, StorageCost())
    for now in (0.0, seconds):
        route.record_responses(1000 + now, 200)
    assert route.depth.now == depth


def test_connections_wait_for_the_depth_unless_responses_are_slow() -> None:
    route, began = origin_state(True, StorageCost()), monotonic()
    assert route.deepens(began)
    assert not route.deepens(began + 2)
    route.depth = Depth(now=STEP)
    assert route.deepens(began + 2)
    route.by_trial = True
    assert not route.deepens(began + 2)
    route.depth = Depth(stopped="deeper was not faster")
    assert not route.deepens(began)


class Answered:
    """A connection of ``state`` that has ``served`` responses."""

    def __init__(self, state: OriginState) -> None:
        self.origin_state, self.served = state, 1


@pytest.mark.parametrize(
    ("deep", "usual", "depth", "stopped"),
    [
        *((3, 1, STEP, ""), (6, 4, 1, "deeper was not faster"), (2, 1, 1, ""), (4, 3, 1, "")),
        (3, 2, 1, ""),  # which may be chance
    ],
)
def test_slow_origin_tries_the_next_depth_on_some_connections(
    deep: int, usual: int, depth: int, stopped: str
) -> None:
    route = origin_state(False, StorageCost())
    busy: Any = [Answered(route) for _ in range(20)]
    depths_of_origins = OriginDepths({route.origin: route}, busy)
    depths_of_origins.adapt(climbs=True, falls=False)
    assert {route.depth_of(each) for each in busy} == {1}
    route._began -= 2  # without a measurement so far, so that responses are slow
    depths_of_origins.adapt(climbs=True, falls=False)
    trying = [each for each in busy if route.depth_of(each) == STEP]
    assert len(trying) == 10
    for each in busy:
        each.served += deep if each in trying else usual
    changed = depths_of_origins.adapt(climbs=True, falls=False)
    assert (route.depth.now, route.depth.stopped, route.by_trial) == (depth, stopped, depth > 1)
    assert changed == (depth > 1)
    # It is measured again when the number of connections is settled.
    depths_of_origins.adapt(climbs=False, falls=False)
    assert not route.by_trial


def trial() -> tuple[OriginState, list[Any], OriginDepths]:
    """Return an origin with twenty connections, half of which try the next depth."""
    route = origin_state(False, StorageCost())
    busy: list[Any] = [Answered(route) for _ in range(20)]
    route._began -= 2
    depths_of_origins = OriginDepths({route.origin: route}, busy)
    depths_of_origins.adapt(climbs=True, falls=False)
    return route, busy, depths_of_origins


def test_trial_is_given_up_where_there_are_many_hosts() -> None:
    """Otherwise it would never end, and the depth of its origin would never be measured."""
    route, busy, depths_of_origins = trial()
    assert {route.depth_of(each) for each in busy} == {1, STEP}
    depths_of_origins.adapt_no_more()
    assert {route.depth_of(each) for each in busy} == {1}
    for now in (0.0, 2.0):
        route.record_responses(1000 + now, 200)
    assert route.depth.now == STEP


def test_trial_whose_connections_were_closed_has_no_gain() -> None:
    route, busy, depths_of_origins = trial()
    busy[:] = [each for each in busy if route.depth_of(each) == 1]
    depths_of_origins.adapt(climbs=True, falls=False)
    assert route.depth.stopped == "deeper was not faster"


def test_depth_of_a_trial_is_not_measured_while_connections_are_added() -> None:
    route = origin_state(True, StorageCost())
    route.depth, route.by_trial = Depth(now=STEP), True
    for now in (0.0, 0.5, 1.0):
        route.record_responses(1000 + now, 200)
    assert (route.depth.now, route.responses) == (STEP, 600)


def test_idle_time_is_not_measured() -> None:
    """Otherwise what follows it would look like a gain."""
    route = origin_state(False, StorageCost())
    for _ in range(2):
        route.connection_started(999.0)
    route.record_responses(1000.0, 200)
    route.connection_stopped(1000.0)
    route.record_responses(1000.1, 20)
    route.connection_stopped(1000.1)
    route.connection_started(1999.0)
    route.record_responses(2000.0, 200)
    assert route.depth.now == 1
    route.record_responses(2000.5, 200)
    assert route.depth.now == STEP
