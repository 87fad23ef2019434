"""Faults while several requests are in flight on one connection: each against a server that has exactly
that fault. In every case no body is stored under another's name and nothing is lost.

Where several parameters vary, each pair of their values occurs in a test that is not slow; where only the
depth varies, the shallow one is slow.
"""

from __future__ import annotations

import gzip
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from threading import Event

import pytest
from harness import Job, report_of, serving, slow_but
from servers import (
    CLOSE,
    CUT,
    RESET,
    Answer,
    Certificates,
    Pause,
    Request,
    Result,
    Server,
    Step,
    Unordered,
    Until,
    download,
    ok,
    redirect,
    status,
)
from servers.rows import HINTS_LAST, NO, SWITCHED

QUICK = ("--retries", "2", "--backoff", "20ms", "--read-timeout", "1s", "--workers", "1")
COUNT = 600
NAMES = [f"file-{n}" for n in range(COUNT)]
DEPTHS = ("4", "64")
RECHECKS = COUNT // 3
"""Files that are requested again to know the order of the responses, of those of one server, at most."""
MOST_REQUESTS = 14
"""Of one file: some without an attempt, some to compare it with itself, and what is handed over."""
DEEP = [pytest.param("4", marks=pytest.mark.slow), "64"]


def body(name: str) -> bytes:
    """Return the body of ``name``; every name has another length."""
    return name.encode() * (1 + int(name.rpartition("-")[2]) % 7)


def plain(request: Request) -> Sequence[Step]:
    return ok(body(request.target.rpartition("/")[2]))


class Each:
    """Respond with ``answer(nth request of its connection, request)``, or with the plain file."""

    def __init__(self, answer: object) -> None:
        self._answer = answer
        self._served: dict[int, int] = {}

    def __call__(self, request: Request) -> Sequence[Step]:
        nth = self._served[request.connection] = self._served.get(request.connection, 0) + 1
        steps: Sequence[Step] = self._answer(nth, request) or plain(request)  # type: ignore[operator]
        return steps


def serve(answer: object) -> Server:
    return Server(files=dict.fromkeys(NAMES, Each(answer)))


def all_right(files: dict[str, bytes], but: Sequence[str] = ()) -> bool:
    return files == {name: body(name) for name in NAMES if name not in but}


def fetch(server: Server, tmp_path: Path, depth: str, *options: str) -> Result:
    connections = () if "--connections" in options else ("--connections", "4")
    return download(server.url, tmp_path / "d", *QUICK, *connections, "--pipeline", depth, *options)


@pytest.mark.parametrize("depth", [*DEEP, "auto"])
def test_pipelined_files_are_stored_under_their_own_names(depth: str, tmp_path: Path) -> None:
    with serve(lambda nth, request: None) as server:
        result = fetch(server, tmp_path, depth)
    assert all_right(result.files)
    assert COUNT <= result.report["requests"] <= COUNT + RECHECKS  # none where depth stays 1
    assert result.report["lanes"]["wire"] == result.report["requests"]
    if depth != "auto":
        reached = result.report["pipeline_depth"]
        assert reached == {"median": int(depth), "max": int(depth), "stopped": {"--pipeline": 1}}


def extra(name: str = "file-1") -> bytes:
    return ok(body(name))[0]


@pytest.mark.parametrize(
    ("depth", "where", "pace"),
    slow_but(
        [
            ("4", 2, 0.0),
            ("4", 7, 0.0),
            ("4", 150, 0.02),
            ("64", 2, 0.02),
            ("64", 7, 0.02),
            ("64", 150, 0.0),
        ],
        DEPTHS,
        (2, 7, 150),
        (0.0, 0.02),
    ),
)
def test_surplus_response_is_not_stored(depth: str, where: int, pace: float, tmp_path: Path) -> None:
    """Each connection sends one response twice, at full speed and at a slow one, where the surplus one
    comes long after the last expected response."""

    def answer(nth: int, request: Request) -> Sequence[Step]:
        steps: list[Step] = [Pause(pace)] if pace and nth < 50 else []
        return [*steps, *plain(request), *(plain(request) if nth == where else [])]

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth, "--read-timeout", "5s")
    assert all_right(result.files)
    assert result.exit == 0
    assert result.report["stored"] == COUNT
    if where < 150:
        assert result.report["pipeline_depth"]["stopped"] == {"an answer that nobody asked for": 1}


@pytest.mark.parametrize("depth", DEPTHS)
def test_surplus_response_behind_the_next_request_is_not_stored(depth: str, tmp_path: Path) -> None:
    """Where it is not known yet whether several requests may be in flight, so that each is alone."""

    def answer(nth: int, request: Request) -> Sequence[Step]:
        steps: list[Step] = [Pause(0.05)] if nth < 8 else []
        return [*steps, *plain(request), *([Pause(0.02), extra()] if nth == 2 else [])]

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth, "--read-timeout", "5s")
    assert all_right(result.files)
    assert result.exit == 0
    assert result.report["pipeline_depth"]["stopped"] == {"an answer that nobody asked for": 1}


@pytest.mark.parametrize("late", [0.0, 0.03])
@pytest.mark.parametrize("depth", ["auto", "off"])
def test_files_are_in_doubt_where_a_late_response_took_the_place_of_another(
    depth: str, late: float, tmp_path: Path
) -> None:
    """With one request in flight nothing is held: it shows later, and nothing is in doubt that is right."""

    def answer(nth: int, request: Request) -> Sequence[Step]:
        steps: list[Step] = [Pause(0.05)] if nth < 9 else []
        whole, *_ = plain(request)
        if nth != 4:
            return [*steps, whole]
        return [*steps, whole, Pause(late), whole] if late else [*steps, whole + whole]

    with serve(answer) as server:
        options = ("--per-host", "1", "--read-timeout", "5s", "--limit", "40")
        result = fetch(server, tmp_path, depth, *options)
    wrong = {name for name, data in result.files.items() if data != body(name)}
    doubtful = result.report["doubtful"]
    assert len(wrong) <= doubtful
    assert bool(doubtful) is bool(late)
    assert result.exit == bool(doubtful)
    if late:
        assert "sent a response that nobody asked for" in result.stderr


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("depth", ["auto", "off"])
def test_files_are_in_doubt_where_the_last_response_comes_when_the_job_is_done(
    depth: str, tls: bool, tmp_path: Path
) -> None:
    """Every response is the one to the request before, up to the last: nothing else shows it."""

    def answer(nth: int, request: Request) -> Sequence[Step]:
        last = request.target.endswith("/file-39")
        steps: list[Step] = [Pause(0.4 if last else 0.02), *plain(request)]
        return [*steps, Pause(0.01), *plain(request)] if nth == 4 else steps

    certificates = Certificates(tmp_path)
    files = dict.fromkeys(NAMES, Each(answer))
    with Server(files=files, tls=certificates.context() if tls else None) as server:
        trusted = ("--cacert", str(certificates.ca), "--read-timeout", "5s", "--limit", "40")
        result = fetch(server, tmp_path, depth, "--per-host", "1", *trusted)
    wrong = {name for name, data in result.files.items() if data != body(name)}
    assert 20 < len(wrong) <= result.report["doubtful"]
    assert result.exit == 1
    assert "sent a response that nobody asked for" in result.stderr


@pytest.mark.parametrize("depth", DEEP)
def test_missing_response_is_requested_again(depth: str, tmp_path: Path) -> None:
    missed = Event()

    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        if nth == 20 and not missed.is_set():
            missed.set()
            return [b""]
        return None

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth)
    assert all_right(result.files)
    # It is preempted, since others wait behind it, unless its connection has come to nothing before.
    assert result.report["attempts_by_error"] in ({}, {"read-timeout": 1})
    assert result.report["requests"] > COUNT


@pytest.mark.parametrize(("depth", "end"), slow_but([("4", CLOSE), ("64", RESET)], DEPTHS, (CLOSE, RESET)))
def test_truncated_response_charges_only_the_first_request(depth: str, end: Step, tmp_path: Path) -> None:
    """The first unanswered request has used up an attempt, the others have not."""
    cut: set[int] = set()

    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        if nth == 30 and len(cut) < 3 and request.connection not in cut:
            cut.add(request.connection)
            return [ok(b"x" * 100)[0][:-50], Pause(0.05), end]
        return None

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth)
    assert all_right(result.files)
    # A server that closes with unread requests resets the connection, whatever it intended.
    assert sum(result.report["attempts_by_error"].values()) == 3
    assert set(result.report["attempts_by_error"]) <= {"truncated", "reset"}
    assert result.report["retries"] == 3


@pytest.mark.parametrize(
    ("depth", "after", "announced"),
    slow_but(
        [
            *(("4", 1, True), ("4", 2, True), ("4", 2, False), ("4", 100, True)),
            *(("64", 1, False), ("64", 100, True), ("auto", 2, True), ("auto", 100, False)),
        ],
        (*DEPTHS, "auto"),
        (1, 2, 100),
        (True, False),
    ),
)
def test_closing_after_n_responses_costs_no_attempt(
    depth: str, after: int, announced: bool, tmp_path: Path
) -> None:
    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        if nth < after:
            return None
        name = request.target.rpartition("/")[2]
        return [*ok(body(name), *(["Connection: close"] if announced else [])), CLOSE]

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth)
        asked = server.count("/get/")
    assert all_right(result.files)
    assert result.report["attempts_by_error"] == {}
    assert result.report["retries"] == 0
    if after == 100 and announced:
        # The requests beyond the limit on the first four connections, before the limit was known.
        unknown = 4 * int(depth) if depth != "auto" else 0
        assert asked <= COUNT * 1.15 + unknown + RECHECKS


@pytest.mark.alone
@pytest.mark.parametrize(
    ("depth", "announced"), slow_but([("4", True), ("64", False)], DEPTHS, (True, False))
)
def test_close_does_not_compensate_for_a_surplus_response(
    depth: str, announced: bool, tmp_path: Path
) -> None:
    """It closes after N responses, and that is known when it begins to send one twice: as many responses
    have come as were requested, and the last request was not answered."""
    order: dict[int, int] = {}

    def answer(nth: int, request: Request) -> Sequence[Step]:
        twice = order.setdefault(request.connection, len(order)) >= 8
        ends = nth == (19 if twice else 20)
        once = ok(
            body(request.target.rpartition("/")[2]), *(["Connection: close"] if ends and announced else [])
        )
        return [*once, *(once if twice and nth == 7 else []), *([CLOSE] if ends else [])]

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth)
    assert all_right(result.files)
    assert result.exit == 0
    assert len(order) > 8


def test_file_that_ends_every_connection_fails_alone(tmp_path: Path) -> None:
    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        return [RESET] if request.target.endswith("/file-300") else None

    with serve(answer) as server:
        result = fetch(server, tmp_path, "16")
    assert all_right(result.files, but=["file-300"])
    assert result.codes == {"file-300": "reset"}
    assert result.failures["file-300"]["attempts"] == 3
    assert result.report["attempts_by_error"] == {"reset": 3}


@pytest.mark.parametrize("depth", DEEP)
def test_error_statuses_belong_to_the_requested_names(depth: str, tmp_path: Path) -> None:
    gone = [f"file-{n}" for n in range(0, COUNT, 13)]

    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        if request.target.rpartition("/")[2] in gone:
            return status(404, body=b"there is no such file" * (nth % 5))
        return None

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth)
        asked = server.count("/get/")
    assert all_right(result.files, but=gone)
    assert result.codes == dict.fromkeys(gone, "http-404")
    assert asked == result.report["requests"] <= COUNT + RECHECKS


@pytest.mark.parametrize("depth", DEEP)
def test_interim_responses_are_skipped(depth: str, tmp_path: Path) -> None:
    interim = (
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
        b"HTTP/1.0 100 Continue\r\n\r\n",
        HINTS_LAST,
    )

    def answer(nth: int, request: Request) -> Sequence[Step]:
        first = interim[nth % 2] if nth < RECHECKS else interim[nth % 4]
        return [first * (nth % 5), *plain(request)]

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth)
    assert all_right(result.files)
    assert result.report["requests"] <= COUNT + RECHECKS


SPOILT: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "switched": lambda sent: [*sent, SWITCHED],
    "switched, then the last": lambda sent: [*sent[:-1], SWITCHED, sent[-1]],
    "interim too many": lambda sent: [*sent, HINTS_LAST],
    "one too many": lambda sent: [*sent, sent[0]],
    "nonsense too much": lambda sent: [*sent, b"nonsense"],
    "nonsense for the last": lambda sent: [*sent[:-1], b"nonsense"],
    "nothing for the last": lambda sent: [*sent[:-1], b""],
    "idle timeout for the last": lambda sent: [*sent[:-1], *status(408), b""],
    "half of the last": lambda sent: [*sent[:-1], sent[-1][:-1], b""],
    "closed behind the last": lambda sent: [*sent, b""],
    "refused without end": lambda sent: [*sent[:-1], NO + b"Transfer-Encoding: chunked\r\n\r\nzz"],
}


OFTEN = ("switched", "nonsense for the last")
"""Without a bound each of them has a file requested for ever, or dozens of times."""


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=() if how in OFTEN else pytest.mark.slow) for how in SPOILT]
)
@pytest.mark.parametrize("few", [False, True])
def test_no_file_is_requested_again_and_again(how: str, few: bool, tmp_path: Path) -> None:
    """Whatever spoils the responses to requests that arrive together, once the server is known to be good.

    It is so with all of them, or with those for a few files: then others succeed all the time.
    """
    bad = [f"file-{n} ".encode() for n in range(900, 904)]

    def spoil(sent: list[bytes]) -> list[bytes]:
        all_good = few and not any(name in response for response in sent for name in bad)
        return sent if all_good else SPOILT[how](sent)

    names = [f"file-{n}" for n in range(2500)]

    def respond(name: str) -> bytes:
        return ok(name.encode() + b" " * (1 + int(name.rpartition("-")[2]) % 50))[0]

    with Unordered(names, respond, "spoilt", after=0 if few else 1200, spoil=spoil) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--connections", "8", "--pipeline", "16")
    assert {name: text.strip().decode() for name, text in result.files.items()} == {n: n for n in names}
    assert max(server.counts.values()) <= MOST_REQUESTS


@pytest.mark.parametrize("depth", DEEP)
def test_handed_over_response_leaves_its_neighbours_alone(depth: str, tmp_path: Path) -> None:
    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        name = request.target.rpartition("/")[2]
        number = int(name.rpartition("-")[2])
        if number % 40 == 7:
            return redirect("/elsewhere/" + name)
        if number % 40 == 17:
            return ok(gzip.compress(body(name), mtime=0), "Content-Encoding: gzip")
        if number % 40 == 27:
            return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
        return None

    def chunked(nth: int, request: Request) -> Sequence[Step] | None:
        steps = answer(nth, request)
        if steps and b"chunked" in steps[0]:  # type: ignore[operator]
            text = body(request.target.rpartition("/")[2])
            return [*steps, b"1\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (text[:1], len(text) - 1, text[1:])]
        return steps

    targets: dict[str, Answer] = {f"/elsewhere/{name}": ok(body(name)) for name in NAMES}
    with Server(targets, files=dict.fromkeys(NAMES, Each(chunked))) as server:
        result = fetch(server, tmp_path, depth)
    packed = {n: gzip.compress(body(n), mtime=0) for n in NAMES if int(n[5:]) % 40 == 17}
    assert result.files == {name: packed.get(name, body(name)) for name in NAMES}
    assert result.report["attempts_by_error"] == {}


@pytest.mark.parametrize("depth", [*DEEP, "auto"])
def test_via_header_limits_depth_to_one(depth: str, tmp_path: Path) -> None:
    with serve(lambda nth, request: ok(body(request.target[5:]), "Via: 1.1 cache")) as server:
        result = fetch(server, tmp_path, depth)
    assert all_right(result.files)
    assert result.report["pipeline_depth"]["stopped"] == {"a proxy is in the path (Via)": 1}
    assert result.report["pipeline_depth"]["median"] == 1


@pytest.mark.parametrize("keep", [True, False])
def test_http_1_0_limits_depth_to_one(keep: bool, tmp_path: Path) -> None:
    def answer(nth: int, request: Request) -> Sequence[Step]:
        text = body(request.target[5:])
        kept = "Connection: keep-alive\r\n" if keep else ""
        head = f"HTTP/1.0 200 OK\r\n{kept}Content-Length: {len(text)}\r\n\r\n"
        return [head.encode() + text, *([] if keep else [CLOSE])]

    with serve(answer) as server:
        result = fetch(server, tmp_path, "16")
    assert all_right(result.files)
    assert result.report["pipeline_depth"]["stopped"] == {"HTTP/1.0": 1}
    assert result.report["attempts_by_error"] == {}


def test_server_that_is_slow_one_request_at_a_time_is_not_pipelined(tmp_path: Path) -> None:
    """Several requests in flight are tried, which is not faster, and given up, now and then."""
    with serve(lambda nth, request: [Pause(0.1), *plain(request)]) as server:
        result = fetch(server, tmp_path, "auto", "--connections", "8")
    assert all_right(result.files)
    found = result.report["pipeline_depth"]
    assert (found["max"], found["median"]) == (8, 1), found


def test_slow_server_that_processes_requests_together_is_pipelined(tmp_path: Path) -> None:
    """Each response takes 0.2 to 0.6 s, drawn at random, from the arrival of its request."""
    with serving(files=900, delay="0.2s-0.6s") as server:
        result = download(server.url, tmp_path / "d", "--workers", "1", "--connections", "16")
    assert result.report["stored"] == 900
    found = result.report["pipeline_depth"]
    assert found["max"] == 64
    assert not [why for why in found["stopped"] if why.startswith("deeper was ")]


@pytest.mark.parametrize("depth", DEPTHS)
def test_large_file_does_not_delay_small_files(depth: str, tmp_path: Path) -> None:
    """It is sent only when all others have been stored or at least requested. Requests behind it are
    answered when it has been read: these responses must be stored although no further response is held back
    after them."""
    large = bytes(range(256)) * 8000
    others = Event()
    its_own: list[int] = []

    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        if request.connection in its_own:
            its_own.clear()
            return [Pause(0.2), *plain(request)]
        if request.target.endswith("/file-40"):
            its_own.append(request.connection)
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large)
            return [head + large[:1_000_000], Until(others), large[1_000_000:]]
        if request.target.endswith(f"/file-{COUNT - 1}"):
            others.set()
        return None

    with serve(answer) as server:
        result = fetch(server, tmp_path, depth, "--read-timeout", "30s")
    assert result.exit == 0
    assert result.files.pop("file-40") == large
    assert all_right(result.files, but=["file-40"])


@pytest.mark.parametrize("seed", slow_but([(0,), (1,)], range(4)))
def test_random_faults_store_exact_files(seed: int, tmp_path: Path) -> None:
    """Drops, extra responses, transient errors, partial responses, pauses: the result is exact."""
    random = Random(seed)

    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        draw = random.random()
        steps = plain(request)
        if draw < 0.01:
            return [RESET if draw < 0.005 else CLOSE]
        if draw < 0.02:
            return [steps[0][: random.randrange(1, len(steps[0]))], CUT]  # type: ignore[index, arg-type]
        if draw < 0.03:
            return status(503, "Retry-After: 0")
        if draw < 0.035:
            return [*steps, extra()]
        if draw < 0.1:
            return [Pause(0.002), *steps]
        return None

    with serve(answer) as server:
        result = fetch(server, tmp_path, "16", "--retries", "20")
    assert all_right(result.files)
    # A response of another file that comes too many leaves in doubt what was requested alone before it.
    assert result.exit == bool(result.report["doubtful"])


def test_interrupted_run_stores_nothing_wrong_and_resumes(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    reached = Event()

    def answer(nth: int, request: Request) -> Sequence[Step] | None:
        if nth == 60:
            reached.set()
        return [Pause(0.01), *plain(request)] if nth > 50 else None

    with serve(answer) as server:
        options = (*QUICK, "--connections", "2", "--pipeline", "16", "--progress", "none")
        run = start(server.url, "-o", tmp_path / "d", *options)
        assert reached.wait(30)
        run.kill(signal.SIGINT)
        assert run.wait(30) == 130
        half = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir() if path.is_file()}
        assert 0 < len(half) < COUNT
        assert all(content == body(name) for name, content in half.items())
        result = fetch(server, tmp_path, "16")
    assert all_right(result.files)
    assert result.report["resumed"]


def test_held_responses_are_bounded_in_bytes(
    run_downloader: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    """Also those that arrive in several pieces."""
    with serving(files=4500, size=60_000) as server:
        argv = ("--store", "null", "--workers", 1, "--connections", 100, "--pipeline", 64, "--json")
        done = run_downloader(server.url, "-o", tmp_path / "dest", *argv)
    report = report_of(done)
    assert report["stored"] == 4500
    assert report["peak_rss_mb"]["worker"] < 150


def test_slow_responses_are_stored_while_the_run_goes_on(tmp_path: Path, start: Callable[..., Job]) -> None:
    """A window ends by time, too: without that, it would end after 256 responses of 0.1 s each."""
    dest, reached = tmp_path / "d", Event()
    stored: list[int] = []

    def answer(nth: int, request: Request) -> Sequence[Step]:
        if nth == 50:
            stored.append(len(list(dest.glob("file-*"))))
            reached.set()
        return [Pause(0.1), *plain(request)]

    with serve(answer) as server:
        options = (*QUICK, "--connections", "1", "--pipeline", "8", "--progress", "none")
        run = start(server.url, "-o", dest, *options)
        assert reached.wait(30)
        run.kill()
        run.wait(30)
    assert stored > [20]


@pytest.mark.parametrize(
    ("number", "seconds", "surplus"),
    [
        (signal.SIGINT, 0.4, False),
        (signal.SIGINT, 0.4, True),
        pytest.param(signal.SIGTERM, 0.8, False, marks=pytest.mark.slow),
    ],
)
def test_held_responses_are_stored_by_a_drain(
    number: signal.Signals, seconds: float, surplus: bool, tmp_path: Path, start: Callable[..., Job]
) -> None:
    """It takes longer than usual then. Not if there is a surplus response: only the first was in step."""
    dest, reached = tmp_path / "d", Event()
    asked: list[str] = []

    def answer(nth: int, request: Request) -> Sequence[Step]:
        asked.append(request.target.rpartition("/")[2])
        if nth == 4:
            reached.set()
        steps = status(404) if asked[-1] in asked[2:3] else plain(request)
        return [Pause(seconds), *steps, *([extra()] if surplus and nth == 4 else [])]

    with serve(answer) as server:
        options = (*QUICK, "--read-timeout", "9s", "--connections", "1", "--pipeline", "8")
        run = start(server.url, "-o", dest, *options)
        assert reached.wait(30)
        run.kill(number)
        assert run.wait(30) == 130
    stored = {asked[0]} if surplus else set(asked) - {asked[2]}
    found = {path.name: path.read_bytes() for path in dest.glob("file-*")}
    assert found == {name: body(name) for name in stored}
