"""A host takes as many requests at once from redirects as from the list itself."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from time import sleep

import pytest
from servers import Request, Server, Step, download, ok, redirect

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
