"""Hosts of which some files always fail: these have their own retries, and cost the others nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from time import monotonic, time

import pytest
from harness import Job, serving
from servers import RESET, Answer, Nth, Pause, Request, Server, Step, download, ok, redirect, status

CHECKS = 2 * 256  # requests that check the order of answers, at most
PATIENT = ("--deadline", "30s", "--read-timeout", "20s", "--connect-timeout", "20s")
BODY = b"hello"


def number(target: str) -> int:
    return int(target.rpartition("f")[2])


def by_hash(n: int) -> bool:
    """Return whether file ``n`` is one of three in ten."""
    return hashlib.md5(str(n).encode()).digest()[0] * 10 < 3 * 256


def by_url(n: int) -> bool:
    return n % 10 < 3


def at_the_head(n: int) -> bool:
    return n < 300


WHICH = {"by hash": by_hash, "by URL": by_url, "at the head of the list": at_the_head}


@pytest.mark.parametrize(
    ("which", "code", "count"),
    [
        ("by hash", 503, 2000),
        ("by hash", 429, 500),
        ("by URL", 502, 500),
        ("at the head of the list", 503, 1000),
    ],
)
def test_three_in_ten_fail_and_no_other_is_lost(which: str, code: int, count: int, tmp_path: Path) -> None:
    """Without retries each file is requested once."""
    bad = WHICH[which]
    with Server(
        default=lambda request: status(code) if bad(number(request.target)) else ok(BODY)
    ) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(count))
        result = download("-", tmp_path / "d", *PATIENT, "--retries", "0", stdin=listed)
        asked = Counter(request.target for request in server.requests)
    expected = {f"f{n}" for n in range(count) if bad(n)}
    assert result.exit == 1
    assert len(result.files) == count - len(expected)
    assert {number(failure["url"]) for failure in result.failures.values()} == {
        int(f[1:]) for f in expected
    }
    assert {(f["code"], f["attempts"]) for f in result.failures.values()} == {(f"http-{code}", 1)}
    # And once or twice more where the order of the server's answers was checked; where the first files are
    # refused, the host seems to refuse all, and they are excused for two rounds.
    most = 5 if which == "at the head of the list" else 3
    assert max(asked.values()) <= most
    assert len(asked) == count
    assert result.report["requests"] == sum(asked.values()) <= count + CHECKS


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_bad_files_have_all_their_retries_beside_each_other(lane: str, tmp_path: Path) -> None:
    with Server(
        default=lambda request: status(503) if by_hash(number(request.target)) else ok(BODY)
    ) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(1000))
        options = (*PATIENT, "--backoff", "100ms", "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin=listed)
        asked = Counter(request.target for request in server.requests)
    bad = sum(by_hash(n) for n in range(1000))
    assert (len(result.files), len(result.failures)) == (1000 - bad, bad)
    assert {(f["code"], f["attempts"]) for f in result.failures.values()} == {("http-503", 6)}
    more = sum(count - (6 if by_hash(number(target)) else 1) for target, count in asked.items())
    assert 0 <= more <= CHECKS
    # The backoffs of one file are 3.1 s at most; of all, one after the other, they would be minutes.
    assert result.report["seconds"] < 25


def test_connections_that_break_for_some_files(tmp_path: Path) -> None:
    with Server(default=lambda request: [RESET] if by_hash(number(request.target)) else ok(BODY)) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(500))
        result = download("-", tmp_path / "d", *PATIENT, "--retries", "0", stdin=listed)
    bad = sum(by_hash(n) for n in range(500))
    assert (len(result.files), len(result.failures)) == (500 - bad, bad)
    assert set(result.codes.values()) == {"reset"}


def test_server_that_refuses_now_and_then(tmp_path: Path) -> None:
    routes = {f"/f{n}": Nth(status(503), ok(BODY)) for n in range(1000) if n % 7 == 3}
    with Server(routes, default=ok(BODY)) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(1000))
        result = download("-", tmp_path / "d", *PATIENT, "--backoff", "50ms", stdin=listed)
    assert (result.exit, len(result.files)) == (0, 1000)
    # A refusal in a check of the order of answers costs no attempt.
    assert 0 < result.report["retries"] <= len(routes)


def test_files_that_are_redirected_to_a_host_that_refuses_some(tmp_path: Path) -> None:
    def answer(request: Request) -> list[Step]:
        return status(503) if by_url(number(request.target)) else ok(BODY)

    with Server(default=answer) as other:
        with Server(default=lambda request: redirect(other.url + request.target)) as server:
            listed = "\n".join(f"{server.url}/f{n}" for n in range(100))
            result = download("-", tmp_path / "d", *PATIENT, "--retries", "0", stdin=listed)
        asked = Counter(request.target for request in other.requests)
    assert (len(result.files), len(result.failures)) == (70, 30)
    assert set(result.codes.values()) == {"http-503"}
    assert len(asked) == 100


@pytest.mark.parametrize("code", [403, 429, 503])
def test_files_of_a_host_that_always_asks_to_wait_are_all_requested(code: int, tmp_path: Path) -> None:
    with Server(default=status(code, "Retry-After: 1")) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(100))
        options = (*PATIENT, "--retries", "1", "--max-retry-after", "20ms", "--workers", "2")
        result = download("-", tmp_path / "d", *options, stdin=listed)
        asked = Counter(request.target for request in server.requests)
    assert set(asked.values()) == {2}
    assert len(asked) == len(result.failures) == 100
    assert {(f["code"], f["attempts"]) for f in result.failures.values()} == {(f"http-{code}", 2)}


@pytest.mark.parametrize("lane", ["auto", pytest.param("requests", marks=pytest.mark.slow)])
def test_retries_outlast_an_outage_whatever_the_host_asks_for(lane: str, tmp_path: Path) -> None:
    """Two hosts are down for 1.2 s, for which the pauses at --backoff suffice, and ask for none."""

    def down(asked: str) -> Answer:
        until: list[float] = []

        def answer(request: Request) -> list[Step]:
            until[:] = until or [request.at + 1.2]
            return status(503, f"Retry-After: {asked}") if request.at < until[0] else ok(BODY)

        return answer

    with contextlib.ExitStack() as stack:
        listed = []
        for n, asked in enumerate(("0", "Wed, 21 Oct 2015 07:28:00 GMT")):
            server = stack.enter_context(Server(default=down(asked), host=f"127.0.0.{1 + n}"))
            listed += [f"{server.url}/{n}-{each}" for each in range(10)]
        options = (*PATIENT, "--backoff", "100ms", "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 20), result.codes


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("ahead", [3600, -3600])
def test_a_date_to_wait_for_counts_from_that_of_the_response(ahead: int, lane: str, tmp_path: Path) -> None:
    """The clock of the server is an hour ahead, or behind; it is down for two seconds, and says so."""
    until: list[float] = []
    asked: Counter[str] = Counter()

    def answer(request: Request) -> list[Step]:
        until[:] = until or [request.at + 2]
        if request.at >= until[0]:
            return ok(BODY)
        asked[request.target] += 1
        dates = [formatdate(time() + ahead + more, usegmt=True) for more in (0, 2)]
        return status(503, f"Date: {dates[0]}", f"Retry-After: {dates[1]}")

    with Server(default=answer) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(100))
        result = download("-", tmp_path / "d", *PATIENT, "--retries", "1", "--lane", lane, stdin=listed)
    assert (result.exit, len(result.files)) == (0, 100), result.codes
    assert result.report["seconds"] < 60  # 120 s is the longest pause
    assert max(asked.values()) <= 1  # it is not asked before


@pytest.mark.parametrize("asked", ["0", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_who_asks_for_no_pause_gets_none(asked: str, tmp_path: Path) -> None:
    """The file waits for its backoff; the others go on meanwhile."""
    refused: list[float] = []

    def answer(request: Request) -> list[Step]:
        if request.target == "/f50" and not refused:
            refused.append(request.at)
            return status(503, f"Retry-After: {asked}")
        return [Pause(0.01), *ok(BODY)]

    with Server(default=answer) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(100))
        options = (*PATIENT, "--workers", "1", "--connections", "2", "--backoff", "6s", "--pipeline", "off")
        result = download("-", tmp_path / "d", *options, stdin=listed)
    assert (result.exit, len(result.files)) == (0, 100), result.codes
    # A pause of the host would be as long as the file's own, 3 s at least.
    assert sum(refused[0] < request.at < refused[0] + 3 for request in server.requests) > 10


@pytest.mark.parametrize("asks", [True, False])
def test_rate_limit_is_kept_and_nothing_is_lost(asks: bool, tmp_path: Path) -> None:
    """A server that takes 100 requests a second, with a Retry-After and without."""
    lock, tokens, at = threading.Lock(), [50.0], [monotonic()]

    def answer(request: Request) -> list[Step]:
        with lock:
            now = monotonic()
            tokens[0], at[0] = min(50.0, tokens[0] + (now - at[0]) * 100), now
            taken = tokens[0] >= 1
            tokens[0] -= taken
        if taken:
            return ok(BODY)
        return status(429, *(["Retry-After: 1"] if asks else []))

    with Server(default=answer, record=False) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(250))
        result = download("-", tmp_path / "d", *PATIENT, "--workers", "1", stdin=listed)
    assert (result.exit, len(result.files)) == (0, 250)
    assert result.report["requests"] < 4 * 250


@pytest.mark.parametrize(("code", "limit"), [(429, 20), (503, 60)])
def test_limit_that_lasts_longer_than_the_retries_of_a_file(code: int, limit: int, tmp_path: Path) -> None:
    """Only retries are left soon, and their refusals tell what the server takes."""
    lock, tokens, at = threading.Lock(), [float(limit)], [monotonic()]

    def answer(request: Request) -> list[Step]:
        with lock:
            now = monotonic()
            tokens[0], at[0] = min(float(limit), tokens[0] + (now - at[0]) * limit), now
            taken = tokens[0] >= 1
            tokens[0] -= taken
        return ok(BODY) if taken else status(code)

    count = 12 * limit
    with Server(default=answer, record=False) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(count))
        options = ("--workers", "1", "--backoff", "200ms", "--retries", "6")
        result = download("-", tmp_path / "d", *PATIENT, *options, stdin=listed)
    assert len(result.files) > 0.97 * count, result.report
    assert result.report["requests"] < 5 * count


@pytest.mark.parametrize("code", [429, 503])
def test_quota_that_all_workers_use_up_and_that_begins_anew(code: int, tmp_path: Path) -> None:
    """50 requests in 1 s, whatever their rate: what is refused meanwhile is not at fault."""
    lock, left, until = threading.Lock(), [0], [0.0]

    def answer(request: Request) -> list[Step]:
        with lock:
            now = monotonic()
            if now >= until[0]:
                until[0], left[0] = now + 1, 50
            left[0] -= 1
            return ok(BODY) if left[0] >= 0 else status(code)

    with Server(default=answer, record=False) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(200))
        options = ("--workers", "2", "--backoff", "100ms", "--retries", "5")
        result = download("-", tmp_path / "d", *PATIENT, *options, stdin=listed)
    assert len(result.files) > 0.95 * 200, result.report


def test_403_with_retry_after_pauses_the_host(tmp_path: Path) -> None:
    refused: list[float] = []

    def answer(request: Request) -> list[Step]:
        if not refused and len(server.requests) > 20:
            refused.append(request.at)
            return status(403, "Retry-After: 1")
        return [Pause(0.01), *ok(BODY)]

    with Server(default=answer) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(300))
        options = (*PATIENT, "--workers", "1", "--connections", "4", "--pipeline", "off")
        result = download("-", tmp_path / "d", *options, stdin=listed)
        times = [request.at - refused[0] for request in server.requests]
    assert (result.exit, len(result.files)) == (0, 300)
    assert result.report["attempts_by_error"] == {"http-403": 1}
    assert not [at for at in times if 0.5 < at < 0.99]


def test_a_403_is_final_without_it(tmp_path: Path) -> None:
    with Server({"/f1": status(403)}, default=ok(BODY)) as server:
        result = download("-", tmp_path / "d", *PATIENT, stdin=f"{server.url}/f1\n{server.url}/f2")
    assert result.failures["f1"]["attempts"] == 1


@pytest.mark.parametrize("comes_back", [True, False])
def test_server_that_refuses_connections_in_the_middle_of_a_job(
    comes_back: bool, start: Callable[..., Job], tmp_path: Path
) -> None:
    """Nothing is lost if it comes back; if not, its files fail as those of a host that is not there."""
    how = {"files": 3000, "delay": "10ms", "page": 3000}
    options = ("--json", "--workers", "1", "--connections", "8", "--pipeline", "off", "--backoff", "100ms")
    with serving(**how) as server:
        port = int(server.url.rpartition(":")[2])
        job = start(server.url, "-o", tmp_path / "d", *options)
        server.until(lambda counters: counters["gets"] > 500)
    if comes_back:  # after as long as it takes to start
        with serving(**how, port=port):
            assert job.wait(60) == 0, job.err
    else:
        assert job.wait(60) == 1, job.err
    report = json.loads(job.out)
    assert report["attempts_by_error"]["connect"] > 3
    assert report["stored"] + report["failed"] == 3000
    assert set(report["failed_by_error"]) <= (set() if comes_back else {"connect"})
