"""How many connections a worker opens by itself, and to one host."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from time import sleep

import pytest
from child_processes import Serve
from servers import Pause, Request, Server, Step, download, ok, status

BODY = b"hello"
PATIENT = ("--deadline", "60s", "--read-timeout", "20s", "--connect-timeout", "20s", "--workers", "1")
RETRYING = (*PATIENT, "--retries", "20", "--backoff", "50ms")


class Crowd:
    """Counts the requests that a server answers at the same time, for each address that it has."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()

    def work(self, host: str) -> int:
        """Spend 20 ms on a request; return how many there were at once when it came."""
        with self.lock:
            self.now[host] += 1
            found = self.now[host]
            self.peak[host] = max(self.peak[host], found)
        sleep(0.02)
        with self.lock:
            self.now[host] -= 1
        return found


def test_connections_to_a_slow_server_grow(tmp_path: Path) -> None:
    with Server(default=[Pause(0.2), *ok(BODY)], record=False) as server:
        listed = [f"{server.url}/f{n}" for n in range(2000)]
        result = download("-", tmp_path / "d", *PATIENT, "--pipeline", "off", stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 2000)
    assert server.open_peak >= 64
    limit = result.report["connection_limit"]
    assert limit["max"] >= 64


def test_slow_server_gets_depth_while_connections_grow(dev_server: Serve, tmp_path: Path) -> None:
    """The server works on all requests of a connection at once."""
    server = dev_server(files=1000, delay="1.1s-1.3s")
    result = download(server.url, tmp_path / "d", "--workers", "1")
    assert (result.exit, len(result.files)) == (0, 1000)
    assert result.report["connection_limit"]["max"] >= 128
    assert result.report["pipeline_depth"]["max"] > 1


@pytest.mark.parametrize("connections", ["32", "20"])
def test_a_number_of_connections_fixes_it(connections: str, tmp_path: Path) -> None:
    with Server(default=[Pause(0.1), *ok(BODY)], record=False) as server:
        listed = [f"{server.url}/f{n}" for n in range(1000)]
        options = (*PATIENT, "--pipeline", "off", "--connections", connections)
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 1000)
    assert server.open_peak == int(connections)
    assert result.report["connection_limit"]["stopped"] == {"--connections": 1}


@pytest.mark.alone  # beside others it is they that make more connections slower, or not
def test_connections_shrink_where_a_server_refuses_them(tmp_path: Path) -> None:
    crowd = Crowd()

    def answer(request: Request) -> list[Step]:
        return ok(BODY) if crowd.work(request.host) <= 12 else status(503)

    with Server(default=answer, record=False) as server:
        listed = [f"{server.url}/f{n}" for n in range(1500)]
        options = (*RETRYING, "--pipeline", "off")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 1500)
    limit = result.report["connection_limit"]
    assert limit["last"] in (8, 16)  # at 16 it is the pace that keeps fewer at work
    assert limit["stopped"] == {"servers refused requests or connections": 1}


def test_one_of_many_hosts_gets_a_few_connections(tmp_path: Path) -> None:
    crowd = Crowd()

    def answer(request: Request) -> list[Step]:
        crowd.work(request.host)
        return ok(BODY)

    with Server(default=answer, host="0.0.0.0", record=False) as server:
        listed = [f"http://127.0.0.{n % 20 + 1}:{server.port}/f{n}" for n in range(4000)]
        result = download("-", tmp_path / "d", *PATIENT, "--pipeline", "off", stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 4000)
    assert len(crowd.peak) == 20
    # Those that came before the ninth host was known may have had more, once.
    assert sorted(crowd.peak.values())[11] <= 8
    assert result.report["connection_limit"]["max"] >= 128


def test_connections_shrink_where_fewer_are_faster(tmp_path: Path) -> None:
    """Whatever waits for the server's lock makes it slower for the one that has it."""
    crowd, lock = Crowd(), threading.Lock()

    def answer(request: Request) -> list[Step]:
        with crowd.lock:
            crowd.now[""] += 1
        with lock:
            sleep(0.001 * (1 + crowd.now[""] / 10))
        with crowd.lock:
            crowd.now[""] -= 1
        return ok(BODY)

    with Server(default=answer, record=False) as server:
        listed = [f"{server.url}/f{n}" for n in range(4000)]
        result = download("-", tmp_path / "d", *PATIENT, "--pipeline", "off", stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 4000)
    limit = result.report["connection_limit"]
    assert limit["max"] >= 64
    assert limit["last"] <= 16
    assert limit["stopped"] == {"fewer were faster": 1}


@pytest.mark.alone  # beside others it is they that make more connections slower, or not
@pytest.mark.timeout(240)
def test_a_job_of_some_thousand_files_gets_few_connections_where_more_are_slower(tmp_path: Path) -> None:
    """Each open connection slows down all; with pipelining, and workers that compete."""
    served: list[int] = []

    def answer(request: Request) -> list[Step]:
        served.append(server.open)
        sleep(0.02 * max(1.0, server.open / 8) ** 1.5)
        return ok(BODY)

    with Server(default=answer, record=False) as server:
        # Some thousand, and a fifth more: where a measurement is disturbed, it is repeated later.
        listed = [f"{server.url}/f{n}" for n in range(6000)]
        options = (*PATIENT[:-1], "2")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed), timeout=200)
    assert (result.exit, len(result.files)) == (0, 6000)
    limit = result.report["connection_limit"]
    assert limit["last"] <= 16
    assert sum(connections <= 32 for connections in served) >= 1500
