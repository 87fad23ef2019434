"""Every kind of fault at once, each in one of N requests, under load: nothing is lost, nothing wrong is
stored, and only what must fail fails."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import (
    ASKING,
    CODES,
    LASTING,
    ODD,
    PASSING,
    Certificates,
    Faults,
    Server,
    body_of,
    download,
    ok,
)

FILES = 900
QUICK = ("--retries", "50", "--backoff", "20ms", "--max-retry-after", "1s", "--deadline", "6s")
QUICK += ("--read-timeout", "1s", "--connect-timeout", "5s")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_each_kind_of_fault_for_one_in_a_hundred_and_fifty(lane: str, scheme: str, tmp_path: Path) -> None:
    """On three hosts: with faults that the pipelined client tolerates, with all faults, and with those that
    request a pause."""
    certificates = Certificates(tmp_path)
    hosts = [f"127.0.3.{n}" for n in range(1, 4)]
    context = certificates.context(hosts=hosts) if scheme == "https" else None
    kinds = (PASSING | LASTING, PASSING | ODD | LASTING, {"500": PASSING["500"], **ASKING})  # type: ignore[operator]
    faults = dict(zip(hosts, (Faults(150, seed, kind) for seed, kind in enumerate(kinds)), strict=True))
    with Server(
        default=lambda request: faults[request.host](request), tls=context, host="0.0.0.0"
    ) as server:
        names = [f"f{n}" for n in range(FILES)]
        listed = [f"{scheme}://{hosts[n % 3]}:{server.port}/{name}" for n, name in enumerate(names)]
        options = (*QUICK, "--lane", lane, "--cacert", str(certificates.ca))
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed), timeout=110)
    failed = {name: CODES[kind] for each in faults.values() for name, kind in each.ended.items()}
    assert result.report["complete"], result.report or result.stderr
    if lane == "auto":
        # Some had been answered when they were requested again, to know the order of the answers.
        failed = {name: code for name, code in failed.items() if name not in result.files}
    assert result.codes == failed
    assert result.files == {name: body_of(name) for name in names if name not in failed}
    assert result.exit == int(bool(failed))
    assert result.report["worker_deaths"] == 0
    assert result.report["peak_rss_mb"]["worker"] < 120
    given = sum((each.given for each in faults.values()), start=Counter[str]())
    assert len(given) > 15, given


@pytest.fixture
def void() -> Iterator[int]:
    """Return a port that answers no SYN: its backlog is full and no connection is accepted."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = []
        while True:
            each = socket.socket()
            each.settimeout(0.3)
            waiting.append(each)
            try:
                each.connect(("127.0.0.1", port))
            except TimeoutError:
                break
        yield port
        for each in waiting:
            each.close()


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_port_that_answers_no_syn(lane: str, void: int, tmp_path: Path) -> None:
    """The files of that host fail, those of another host do not wait for them."""
    with Server(default=lambda request: ok(request.target.encode())) as server:
        listed = [f"http://127.0.0.1:{void}/v{n}" for n in range(20)]
        listed += [f"{server.url}/g{n}" for n in range(100)]
        options = ("--connect-timeout", "500ms", "--retries", "1", "--backoff", "50ms", "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
    assert result.codes == {f"v{n}": "connect-timeout" for n in range(20)}
    assert set(result.files) == {f"g{n}" for n in range(100)}
