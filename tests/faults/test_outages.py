"""Hosts that refuse everything for longer than all attempts at a file take, and have few files."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from servers import RESET, Request, Server, Step, download, ok, status

BODY = b"hello"
# All attempts at a file take 1.5 to 3 s, 28 s of the default are 5.5 s.
RETRYING = ("--retries", "5", "--backoff", "100ms", "--connect-timeout", "5s", "--read-timeout", "5s")
_OUTAGE = 4.0


def down_after(good: int, refusal: list[Step]) -> Callable[[Request], list[Step]]:
    """Return what answers ``good`` requests, then refuses all for 4 s, then answers all again."""
    lock, counted = threading.Lock(), Counter[str]()
    began: list[float] = []

    def answer(request: Request) -> list[Step]:
        with lock:
            counted["requests"] += 1
            if counted["requests"] > good and not began:
                began.append(monotonic())
        return refusal if began and monotonic() - began[0] < _OUTAGE else ok(BODY)

    return answer


@pytest.mark.parametrize(("files", "hosts", "good"), [(80, 20, 0), (8, 1, 4), (60, 30, 30), (1, 1, 0)])
@pytest.mark.parametrize(
    "refusal",
    [
        status(503),
        pytest.param(status(502), marks=pytest.mark.slow),
        status(503, "Retry-After: 1"),
        pytest.param([RESET], marks=pytest.mark.slow),
    ],
    ids=["503", "502", "asks", "reset"],
)
def test_server_that_restarts_loses_no_file_of_hosts_that_have_few(
    refusal: list[Step], files: int, hosts: int, good: int, tmp_path: Path
) -> None:
    with Server(default=down_after(good, refusal), host="0.0.0.0", record=False) as server:
        listed = [f"http://127.0.0.{n % hosts + 1}:{server.port}/f{n}" for n in range(files)]
        result = download("-", tmp_path / "d", *RETRYING, stdin="\n".join(listed))
    assert (result.exit, result.failures, len(result.files)) == (0, {}, files)


def test_file_that_is_always_refused_beside_others_has_no_further_attempt(tmp_path: Path) -> None:
    """Only its backoff is waited for at the end of the run."""
    lock, counted = threading.Lock(), Counter[str]()

    def answer(request: Request) -> list[Step]:
        with lock:
            counted[request.target] += 1
        return status(503) if int(request.target.rpartition("f")[2]) % 3 == 0 else ok(BODY)

    with Server(default=answer, record=False) as server:
        listed = [f"{server.url}/f{n}" for n in range(302)]
        result = download("-", tmp_path / "d", *RETRYING, "--workers", "1", stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (1, 201)
    attempts = Counter(each["attempts"] for each in result.failures.values())
    assert attempts == {6: 101}
    assert max(counted.values()) <= 7  # the requests client may request what the pipelined one has


def test_host_of_one_file_that_is_always_refused_has_one_attempt_more(tmp_path: Path) -> None:
    with Server(default=status(503)) as server:
        result = download("-", tmp_path / "d", *RETRYING, stdin=f"{server.url}/f0\n")
        requests = len(server.requests)
    assert (result.exit, requests) == (1, 7)


@pytest.mark.parametrize(("retries", "backoff"), [(0, "100ms"), (2, "500ms"), (5, "20ms")])
def test_who_wants_failures_soon_gets_them(retries: int, backoff: str, tmp_path: Path) -> None:
    """What fails for less than a second shows no outage."""
    with Server(default=status(503)) as server:
        options = ("--retries", str(retries), "--backoff", backoff)
        result = download("-", tmp_path / "d", *options, stdin=f"{server.url}/f0\n")
        requests = len(server.requests)
    assert (result.exit, requests) == (1, 1 + retries)
