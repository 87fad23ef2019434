"""Hosts that fail, are slow, do not respond or ask for a pause: they are left alone, and others are not
delayed."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from time import time

import pytest
from servers import (
    CLOSE,
    HANG,
    RESET,
    Forever,
    Nth,
    Pause,
    Request,
    Server,
    Step,
    closed_port,
    download,
    ok,
    redirect,
    status,
)

QUICK = ("--deadline", "2s", "--read-timeout", "500ms", "--connect-timeout", "1s")
QUICK += ("--retries", "1", "--backoff", "50ms")
# Where no server is slow on purpose, a busy machine must not count as one.
PATIENT = (*QUICK, "--deadline", "30s", "--read-timeout", "20s", "--connect-timeout", "20s")
STALL = 8.0  # seconds for which a busy machine may be occupied otherwise
BODY = b"hello"


def urls(server: Server, count: int, prefix: str = "f") -> list[str]:
    return [f"{server.url}/{prefix}{n}" for n in range(count)]


def spread(requests: list[Request]) -> float:
    """Return the longest time without a request, in seconds."""
    times = sorted(request.at for request in requests)
    return max((b - a for a, b in pairwise(times)), default=0.0)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("code", "asked", "least", "most"),
    [
        # The pause that the server must see, in seconds; --max-retry-after is 1.2 s.
        (429, "1", 0.9, 2.5),
        (503, "date", 0.9, 2.5),
        (503, "1000000000", 1.0, 2.5),
        (429, "-7", 0.0, 0.9),
        (503, "1e9", 0.0, 0.9),
        (503, "", 0.0, 0.9),
    ],
)
def test_retry_after_stops_all_workers(
    code: int, asked: str, least: float, most: float, tmp_path: Path
) -> None:
    refusals: list[float] = []

    def answer(request: Request) -> list[Step]:
        # The first request when both workers are at work: one worker has four connections.
        if refusals or server.connections < 7:
            return [Pause(0.01), *ok(BODY)]
        refusals.append(request.at)
        # A date has whole seconds: it is between one and two seconds from now.
        wait = formatdate(time() + 2.2, usegmt=True) if asked == "date" else asked
        return status(code, f"Retry-After: {wait}" if wait else "X: nothing said")

    with Server(default=answer) as server:
        options = (*PATIENT, "--workers", "2", "--connections", "4")
        options += ("--max-retry-after", "1200ms" if least else "60s")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(urls(server, 900)))
        requests = list(server.requests)
    assert (result.exit, result.report["stored"]) == (0, 900)
    # And some files once more, to know the order of the answers.
    assert 900 + result.report["retries"] <= len(requests) == result.report["requests"] <= 900 * 1.4
    assert 1 <= len(refusals) == result.report["retries"] <= 2  # two threads may refuse at once
    # One pause in which none of the eight connections of two workers was used.
    assert least <= spread(requests) <= most + STALL
    began = refusals[0] + 0.5
    assert not [request for request in requests if began < request.at < refusals[0] + least]


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize(("before", "seconds"), [(0, 1.5), (200, 3.0)])
def test_outage_causes_no_retry_storm_and_loses_nothing(
    before: int, seconds: float, lane: str, tmp_path: Path
) -> None:
    """A host that answers 503 to everything, at first, or after so many requests.

    The time is less than that of the pauses, which are five, and one more at a host that has answered.
    """
    until: list[float] = []

    def answer(request: Request) -> list[Step]:
        if not until and len(server.requests) > before:
            until.append(request.at + seconds)
        if until and request.at < until[0]:
            refused.append(request.at)
            return status(503)
        return [Pause(0.005), *ok(BODY)]

    refused: list[float] = []
    with Server(default=answer) as server:
        options = (*PATIENT, "--workers", "2", "--connections", "8", "--lane", lane, "--pipeline", "off")
        # Those of a host that cannot be reached would be 0.2 s each.
        options += ("--retries", "5", "--backoff", "80ms", "--connect-timeout", "1s")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(urls(server, 1000)))
    assert (result.exit, len(result.files)) == (0, 1000)
    # First attempts until so many in a row are no chance, and those in flight; then one at a time. Where a
    # response of before arrives late, the host counts as up once more. A storm would be thousands.
    assert len(refused) <= 2 * 3 * (16 + 8)


@pytest.mark.parametrize(
    "answer", [status(503), status(502), [RESET], [b"HTTP/1.1 200 OK\r\nConte", CLOSE]]
)
def test_files_of_a_host_that_fails_always_are_all_requested(answer: list[Step], tmp_path: Path) -> None:
    """Each ends with what it got, after all of its attempts. Other hosts do not wait."""
    with Server(default=answer) as down, Server(default=ok(BODY)) as well:
        options = (*PATIENT, "--workers", "2", "--connections", "16")
        listed = [url for pair in zip(urls(down, 200), urls(well, 200, "g"), strict=True) for url in pair]
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
        asked = Counter(request.target for request in down.requests)
        last = max(request.at for request in down.requests)
        assert max(request.at for request in well.requests) < last
    assert len(result.files) == len(asked) == len(result.failures) == 200
    assert min(asked.values()) >= 2
    assert len(set(result.codes.values())) == 1
    assert {failure["attempts"] for failure in result.failures.values()} == {2}


def test_recovering_host_gets_requests_gradually(tmp_path: Path) -> None:
    """After a 503: one request at a time, then two, four, …"""
    with Server(default=[Pause(0.05), *ok(BODY)]) as server:
        server.routes["/f0"] = Nth([Pause(0.1), *status(503, "Retry-After: 1")], ok(BODY))
        options = (*PATIENT, "--workers", "1", "--connections", "16")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(urls(server, 200)))
        refusal = server.seen("/f0")[0].at
        resumed = sorted(r.at for r in server.requests if r.at > refusal + 0.8)
    assert (result.exit, len(result.files)) == (0, 200)
    # Each response takes 50 ms: one request in the first 50 ms, at most 1 + 2 in the second, and so on.
    began = resumed[0]
    assert len(resumed) > 100
    assert sum(at < began + 0.045 for at in resumed) == 1
    assert sum(at < began + 0.090 for at in resumed) <= 3


def test_dead_and_silent_hosts_do_not_delay_others(tmp_path: Path) -> None:
    with ExitStack() as stack:
        mute = stack.enter_context(Server(default=[HANG]))
        drip = stack.enter_context(Server(default=[b"HTTP/1.1 200 OK\r\n", Forever(b"X: y\r\n", 0.1)]))
        good = stack.enter_context(Server(default=ok(BODY)))
        refused = stack.enter_context(closed_port())
        listed = [f"{refused}/r{n}" for n in range(50)]
        listed += [
            url for pair in zip(urls(mute, 12, "m"), urls(drip, 12, "d"), strict=True) for url in pair
        ]
        listed += urls(good, 300, "g")
        options = (*QUICK, "--retries", "0", "--deadline", "1s", "--workers", "1", "--connections", "6")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
        last_good = max(request.at for request in good.requests)
        slow = [request.at for request in (*mute.requests, *drip.requests)]
    assert Counter(result.codes.values()) == {"connect": 50, "read-timeout": 12, "timeout": 12}
    assert len(result.files) == 300
    # When the last good file was requested, most of the slow ones were still waiting.
    assert sum(at < last_good for at in slow) <= 12


SLOW_NAMES = """
import _socket, time
real = _socket.getaddrinfo
def getaddrinfo(host, *rest):
    name = host.decode() if isinstance(host, bytes) else host
    with open({log!r}, "a") as log:
        log.write(f"{{name}} {{rest[4] if len(rest) > 4 else 0}}\\n")
    if name.endswith(".stuck.example"):
        if len(rest) > 4 and rest[4]:
            raise _socket.gaierror(-2, "not numeric")
        time.sleep(20)
    if name.endswith(".missing.example"):
        raise _socket.gaierror(-2, "Name or service not known")
    if name.endswith(".here.example"):
        if len(rest) > 4 and rest[4]:
            raise _socket.gaierror(-2, "not numeric")
        host = "127.0.0.1"
    return real(host, *rest)
_socket.getaddrinfo = getaddrinfo
"""


def test_unresolvable_names_do_not_delay_others(tmp_path: Path) -> None:
    """The system's lookup is replaced in the processes under test: 30 names hang, one does not exist."""
    log = tmp_path / "look-ups"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SLOW_NAMES.format(log=str(log)))
    from servers.command import ROOT

    with Server(default=ok(BODY)) as server:
        listed = [f"http://n{n}.stuck.example/s{n}.{k}" for k in range(3) for n in range(30)]
        listed += [f"http://a.missing.example/m{n}" for n in range(50)]
        listed += [f"http://h{n % 5}.here.example:{server.port}/g{n}" for n in range(200)]
        result = download(
            "-",
            tmp_path / "d",
            *QUICK,
            *("--retries", "0", "--workers", "1", "--connections", "32", "--resolver", "system"),
            stdin="\n".join(listed),
            env={"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"},
        )
    assert Counter(result.codes.values()) == {"dns": 140}
    assert len(result.files) == 200
    looked_up = Counter(line.split()[0] for line in log.read_text().splitlines() if line.endswith(" 0"))
    assert "127.0.0.1" not in looked_up  # a numeric address is not looked up in a thread
    # One lookup of a name at a time, and the result is cached.
    assert all(looked_up[f"h{n}.here.example"] == 1 for n in range(5))
    assert all(looked_up[f"n{n}.stuck.example"] <= 2 for n in range(30))
    assert looked_up["a.missing.example"] <= 8


def test_connections_are_reused(tmp_path: Path) -> None:
    names = {f"f{n}": ok(BODY) for n in range(400)}
    with Server(files=names) as server:
        result = download(server.url, tmp_path / "d", *PATIENT, "--workers", "2", "--connections", "4")
        assert (result.exit, len(result.files)) == (0, 400)
        # And one of the feeder's.
        assert server.connections <= 2 * 4 + 1


def test_connection_limit_holds_over_all_hosts(tmp_path: Path) -> None:
    with Server(default=ok(BODY), host="0.0.0.0") as server:
        listed = [f"http://127.0.0.{n % 40 + 1}:{server.port}/f{n}" for n in range(600)]
        options = (*PATIENT, "--workers", "1", "--connections", "4")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
        assert (result.exit, len(result.files)) == (0, 600)
        assert result.report["connections_peak"] == server.open_peak == 4
        assert len({request.host for request in server.requests}) == 40


@pytest.mark.alone
def test_rate_holds_over_all_workers(tmp_path: Path) -> None:
    with Server(default=ok(BODY)) as server:
        options = (*PATIENT, "--workers", "2", "--connections", "16", "--rate", "50")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(urls(server, 130)))
        times = sorted(request.at for request in server.requests)
    assert (result.exit, len(times)) == (0, 130)
    windows = [sum(at <= each < at + 1 for each in times) for at in times]
    assert max(windows) <= 55
    assert times[-1] - times[0] >= 130 / 55 - 0.1


@pytest.mark.alone
def test_rate_counts_redirects(tmp_path: Path) -> None:
    files = {f"f{n}": redirect(f"/get/g{n}") for n in range(40)} | {f"g{n}": ok(BODY) for n in range(40)}
    with Server(files=files) as server:
        listed = [f"{server.url}/get/f{n}" for n in range(40)]
        options = (*PATIENT, "--workers", "1", "--connections", "16", "--rate", "50")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
        times = sorted(request.at for request in server.requests)
    # What the pipelined client leaves to requests is requested once more.
    assert (result.exit, len(result.files)) == (0, 40)
    assert len(times) >= 80
    assert max(sum(at <= each < at + 1 for each in times) for at in times) <= 55


def test_per_host_limit_over_all_workers(tmp_path: Path) -> None:
    with Server(default=[Pause(0.01), *ok(BODY)]) as server:
        options = (*PATIENT, "--workers", "1", "--connections", "16", "--per-host", "3")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(urls(server, 60)))
        assert (result.exit, len(result.files)) == (0, 60)
        assert server.open_peak <= 3
