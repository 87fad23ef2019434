"""A host takes as many requests at once from redirects as from the list itself."""

from __future__ import annotations

import threading
from collections import Counter, deque
from pathlib import Path
from time import monotonic, sleep

import pytest
from servers import Request, Server, Step, download, ok, redirect, status

BODY = b"hello"
OPTIONS = ("--workers", "1", "--deadline", "60s", "--retries", "0")
ENTRIES = 16  # hosts of the list


class Places:
    """Counts the requests that each address of a server answers at the same time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()

    def answer(self, host: str) -> list[Step]:
        with self.lock:
            self.now[host] += 1
            self.peak[host] = max(self.peak[host], self.now[host])
        sleep(0.02)
        with self.lock:
            self.now[host] -= 1
        return ok(BODY)


@pytest.mark.parametrize(("most", "options"), [(8, ()), (2, ("--per-host", "2"))])
def test_host_that_redirects_lead_to_gets_as_many_as_any(
    most: int, options: tuple[str, ...], tmp_path: Path
) -> None:
    """Links to other hosts: short links, DOIs, entry mirrors of one store."""
    places = Places()

    def answer(request: Request) -> list[Step]:
        if request.host == "127.0.0.99":
            return places.answer(request.host)
        return redirect(f"http://127.0.0.99:{server.port}{request.target}")

    with Server(default=answer, host="0.0.0.0", record=False) as server:
        listed = [f"http://127.0.0.{n % ENTRIES + 1}:{server.port}/f{n}" for n in range(320)]
        # A few that are listed for the same host have their turn, too.
        listed += [f"http://127.0.0.99:{server.port}/own{n}" for n in range(20)]
        result = download("-", tmp_path / "d", *OPTIONS, *options, stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 340)
    assert places.peak["127.0.0.99"] == most


def test_hosts_that_redirect_to_each_other(tmp_path: Path) -> None:
    """None of them waits for a place that another one keeps while it waits."""

    def answer(request: Request) -> list[Step]:
        name, hops = request.target.rsplit("-", 1)
        if hops == "0":
            sleep(0.002)
            return ok(BODY)
        other = "127.0.0.2" if request.host == "127.0.0.1" else "127.0.0.1"
        return redirect(f"http://{other}:{server.port}{name}-{int(hops) - 1}")

    with Server(default=answer, host="0.0.0.0", record=False) as server:
        listed = [f"http://127.0.0.{n % 2 + 1}:{server.port}/f{n}-{n % 5}" for n in range(200)]
        result = download("-", tmp_path / "d", *OPTIONS, "--per-host", "1", stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 200)


@pytest.mark.parametrize("asked", [("Retry-After: 1",), ()])
def test_redirecting_host_is_not_asked_again_while_the_other_is_paused(
    asked: tuple[str, ...], tmp_path: Path
) -> None:
    """A gate in front of a store that takes so many requests a second."""
    files, taken, asks = 150, deque[float](), Counter[str]()
    lock = threading.Lock()

    def answer(request: Request) -> list[Step]:
        with lock:
            asks[request.host] += 1
            if request.host != "127.0.0.99":
                return redirect(f"http://127.0.0.99:{server.port}{request.target}")
            while taken and taken[0] < monotonic() - 1:
                taken.popleft()
            if len(taken) >= 25:
                return status(429, *asked)
            taken.append(monotonic())
        return ok(BODY)

    with Server(default=answer, host="0.0.0.0", record=False) as server:
        listed = [f"http://127.0.0.1:{server.port}/f{n}" for n in range(files)]
        result = download("-", tmp_path / "d", "--workers", "1", stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, files)
    # Twice for each request at the other, as the first redirect is old by then; and in windows at first.
    assert asks["127.0.0.1"] <= 2 * asks["127.0.0.99"] + files / 2


@pytest.mark.parametrize("hops", [1, 2])
def test_redirect_that_holds_for_a_short_time_is_used_within_it(hops: int, tmp_path: Path) -> None:
    """Signed URLs, of a store that takes its time: the requests wait for each other."""

    def answer(request: Request) -> list[Step]:
        path, _, until = request.target.partition("?until=")
        if request.host == "127.0.0.99":
            sleep(0.1)
            return ok(BODY) if float(until) > monotonic() else status(403)
        if hops == 2 and request.host == "127.0.0.1":
            return redirect(f"http://127.0.0.2:{server.port}{path}")
        return redirect(f"http://127.0.0.99:{server.port}{path}?until={monotonic() + 2.5}")

    with Server(default=answer, host="0.0.0.0", record=False) as server:
        listed = [f"http://127.0.0.1:{server.port}/f{n}" for n in range(200)]
        result = download("-", tmp_path / "d", *OPTIONS, "--per-host", "4", stdin="\n".join(listed))
    assert (result.exit, result.failures, len(result.files)) == (0, {}, 200)


def test_signed_redirects_over_two_hosts_that_take_few_connections(tmp_path: Path) -> None:
    """The last one is paused again and again, too. A refusal after a long wait is not final."""
    lock, served, paused = threading.Lock(), 0, 0.0

    def first(request: Request) -> list[Step]:
        return redirect(f"{second_host.url}{request.target}?until={monotonic() + 2.5}")

    def second(request: Request) -> list[Step]:
        path, _, until = request.target.partition("?until=")
        if float(until) < monotonic():
            return status(403)
        return redirect(f"{store.url}{path}?until={monotonic() + 2.5}")

    def answer(request: Request) -> list[Step]:
        nonlocal served, paused
        now = monotonic()
        with lock:
            served += 1
            if served % 150 == 0:
                paused = now + 2
        if now < paused:
            return status(503, "Retry-After: 2")
        if float(request.target.partition("?until=")[2]) < now:
            return status(410)
        sleep(0.005)
        return ok(BODY)

    with (
        Server(default=first, host="127.0.0.1") as server,
        Server(default=second, host="127.0.0.2", most=5) as second_host,
        Server(default=answer, host="127.0.0.3", most=3) as store,
    ):
        listed = [f"{server.url}/f{n}" for n in range(500)]
        result = download("-", tmp_path / "d", "--workers", "2", stdin="\n".join(listed), timeout=100)
    assert (result.exit, result.failures, len(result.files)) == (0, {}, 500)
