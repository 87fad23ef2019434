"""Hosts that refuse on a connection what they grant on another: a request goes there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from servers import Pause, Request, Server, Step, download, ok, status

BODY = b"body"
PATIENT = ("--deadline", "30s", "--read-timeout", "20s", "--connect-timeout", "20s")
QUICK = (*PATIENT, "--workers", "1", "--connections", "8", "--backoff", "50ms")
LANES = ("auto", "requests")


def urls(server: Server, files: int) -> str:
    return "\n".join(f"{server.url}/f{n}" for n in range(files))


def granting_twenty(refusal: list[Step]) -> Callable[[Request], list[Step]]:
    """Return what answers 20 requests of each connection, and refuses all further ones of it."""
    answered: Counter[int] = Counter()

    def answer(request: Request) -> list[Step]:
        answered[request.connection] += 1
        return ok(BODY) if answered[request.connection] <= 20 else refusal

    return answer


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("refusal", [status(503), status(429), status(500), status(503, "Retry-After: 0")])
def test_requests_beyond_those_that_a_connection_is_granted(
    refusal: list[Step], lane: str, tmp_path: Path
) -> None:
    """The server refuses all further ones, and keeps the connection open."""
    with Server(default=granting_twenty(refusal)) as server:
        result = download("-", tmp_path / "d", *QUICK, "--lane", lane, stdin=urls(server, 1000))
        asked = len(server.requests)
    assert (result.exit, len(result.files)) == (0, 1000), result.codes
    # Fifty connections, each of which is left after some refusals; with all of them at once it pauses.
    assert asked <= 2 * 1000


@pytest.mark.parametrize("run", range(3))
@pytest.mark.parametrize(("connections", "files", "retries"), [(4, 162, 2), (4, 243, 2), (8, 160, 2)])
def test_end_of_a_job_whose_connections_have_had_all_that_they_are_granted(
    connections: int, files: int, retries: int, run: int, tmp_path: Path
) -> None:
    """The last file is refused on one after the other, unless they are left soon enough."""
    with Server(default=granting_twenty(status(503))) as server:
        options = ("--connections", str(connections), "--retries", str(retries), "--lane", "requests")
        result = download("-", tmp_path / "d", *QUICK, *options, stdin=urls(server, files))
    assert (result.exit, len(result.files)) == (0, files), result.codes


@pytest.mark.parametrize("lane", LANES)
def test_machine_of_a_balancer_that_refuses_everything(lane: str, tmp_path: Path) -> None:
    """Each third connection leads to it. It answers sooner than the others, and so would be asked more."""

    def answer(request: Request) -> list[Step]:
        return ok(BODY) if request.connection % 3 else status(503)

    with Server(default=answer) as server:
        options = (*QUICK, "--retries", "2", "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin=urls(server, 1000))
        asked = len(server.requests)
    assert (result.exit, len(result.files)) == (0, 1000), result.codes
    assert asked <= 1000 + 250


@pytest.mark.parametrize("lane", LANES)
def test_machine_of_a_balancer_that_refuses_everything_late(lane: str, tmp_path: Path) -> None:
    """Its connections are idle last: nothing else has been served since, and only its files are left."""

    def answer(request: Request) -> list[Step]:
        return [Pause(0.01), *ok(BODY)] if request.connection % 4 else [Pause(0.4), *status(502)]

    with Server(default=answer) as server:
        options = (*PATIENT, "--workers", "1", "--connections", "32", "--retries", "1", "--lane", lane)
        result = download("-", tmp_path / "d", *options, "--backoff", "50ms", stdin=urls(server, 64))
        asked = len(server.requests)
    assert (result.exit, len(result.files)) == (0, 64), result.codes
    assert asked <= 64 + 8 + 3


@pytest.mark.parametrize("lane", LANES)
def test_host_that_refuses_most_requests_is_not_connected_to_ever_anew(lane: str, tmp_path: Path) -> None:
    """It refuses three of four on each connection: another one gains nothing."""
    number = count()

    def answer(request: Request) -> list[Step]:
        return status(503) if next(number) % 4 else ok(BODY)

    with Server(default=answer) as server:
        options = (*QUICK, "--retries", "100", "--max-retry-after", "200ms", "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin=urls(server, 200))
        asked, opened = len(server.requests), server.connections
    assert (result.exit, len(result.files)) == (0, 200), result.codes
    assert opened <= 8 + asked // 5, (opened, asked)


@pytest.mark.parametrize("lane", LANES)
def test_files_that_are_always_refused_cost_few_connections(lane: str, tmp_path: Path) -> None:
    def answer(request: Request) -> list[Step]:
        return status(500) if int(request.target[2:]) % 20 == 7 else ok(BODY)

    with Server(default=answer) as server:
        options = (*QUICK, "--retries", "3", "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin=urls(server, 1000))
        opened = server.connections
    assert (result.exit, len(result.files), len(result.failures)) == (1, 950, 50)
    assert opened <= 8 + 50  # one for each such file, not for each of its attempts
