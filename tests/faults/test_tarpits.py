"""Responses through which next to nothing comes hold a part of the slots only, while others wait."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

import pytest
from harness import Job
from servers import HANG, Answer, Certificates, Forever, Pause, Request, Server, Step, download, ok

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
TARPITS: dict[str, Answer] = {
    "a byte each 20 s": [HEAD, Forever(b"x", 20.0)],
    "silent behind the header": [HEAD, HANG],
    "silent": [HANG],
    "endless header": [b"HTTP/1.1 200 OK\r\n", Forever(b"X: y\r\n", 5.0)],
}


def interleaved(urls: list[str], tarpits: list[str]) -> str:
    """Return a list that begins with tarpits, with the others in between."""
    first, rest = tarpits[: len(tarpits) // 2], tarpits[len(tarpits) // 2 :]
    step = len(urls) // len(rest)
    mixed = [each for n, url in enumerate(rest) for each in (url, *urls[n * step : (n + 1) * step])]
    return "\n".join([*first, *mixed, *urls[len(rest) * step :]]) + "\n"


@pytest.mark.parametrize(
    ("kind", "hosts", "tls", "options"),
    [
        ("a byte each 20 s", 1, False, ()),
        ("a byte each 20 s", 40, False, ("--lane", "requests")),
        ("silent behind the header", 1, True, ()),
        ("endless header", 3, False, ()),
        pytest.param("silent", 1, False, ("--connections", "4"), marks=pytest.mark.slow),
        pytest.param("silent behind the header", 1, True, ("--lane", "requests"), marks=pytest.mark.slow),
        pytest.param("endless header", 1, False, ("--connections", "1"), marks=pytest.mark.slow),
    ],
)
def test_living_files_are_stored_while_tarpits_trickle(
    kind: str, hosts: int, tls: bool, options: tuple[str, ...], tmp_path: Path
) -> None:
    def answer(request: Request) -> Answer:
        return TARPITS[kind] if request.target.startswith("/tarpit") else ok()

    few = "--connections" in options
    certificates = Certificates(tmp_path)
    context = certificates.context() if tls else None
    with Server(default=answer, host="127.0.0.1" if tls else "0.0.0.0", tls=context) as server:
        hosts_of = [server.url.replace("127.0.0.1", f"127.0.0.{n + 1}") for n in range(hosts)]
        tarpits = [f"{hosts_of[n % hosts]}/tarpit{n}" for n in range(6 if few else 40)]
        living = [f"{hosts_of[n % hosts]}/living{n}" for n in range(200)]
        (tmp_path / "list.txt").write_text(interleaved(living, tarpits))
        dest = tmp_path / "d"
        command = [sys.executable, "-m", "downloader", tmp_path / "list.txt", "-o", dest, "--workers", "1"]
        command += ["--cacert", certificates.ca, *options]
        with contextlib.closing(Job(*command)) as job:
            job.until(lambda: sum(path.name.startswith("living") for path in dest.glob("*")) == 200, 30)
            job.kill(signal.SIGINT)
            assert job.wait() == 130


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_tarpits_get_all_attempts_and_their_own_code(lane: str, tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        return [HEAD, Forever(b"x", 0.1)] if request.target.startswith("/t") else [Pause(0.01), *ok()]

    with Server(default=answer) as server:
        listed = [f"{server.url}/t{n}" for n in range(6)] + [f"{server.url}/f{n}" for n in range(200)]
        options = ("--connections", "4", "--deadline", "1s", "--retries", "1", "--backoff", "10ms")
        result = download(
            "-", tmp_path / "d", *options, "--workers", "1", "--lane", lane, stdin="\n".join(listed)
        )
    assert len(result.files) == 200
    assert {(each["code"], each["attempts"]) for each in result.failures.values()} == {("timeout", 2)}
    assert len(result.failures) == 6


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_large_files_over_a_slow_line_end_while_others_wait(lane: str, tmp_path: Path) -> None:
    body = b"x" * 150_000
    (whole,) = ok(body)
    assert isinstance(whole, bytes)
    slow: list[Step] = []
    for start in range(0, len(whole), 5000):
        slow += [whole[start : start + 5000], Pause(0.1)]

    def answer(request: Request) -> Answer:
        return slow if request.target.startswith("/big") else [Pause(0.02), *ok()]

    with Server(default=answer) as server:
        listed = [f"{server.url}/big{n}" for n in range(6)] + [f"{server.url}/f{n}" for n in range(300)]
        options = ("--connections", "4", "--workers", "1", "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
        asked = server.count("/big")
    assert (result.exit, len(result.files)) == (0, 306)
    assert asked <= 6 * 3  # none is begun over and over
