"""Four secrets, every kind of failure, -vv: none of the four stands in anything that a run says or leaves,
nor in what others see of its processes."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from checker import left_in
from harness import Job, command, environment, members
from servers import Certificates, Request, Server, Step, Tls
from servers.rows import CASES, HOPS

URL, HEADER, NETRC, PROXY = "url-s3cret-a", "header-s3cret-b", "netrc-s3cret-c", "proxy-s3cret-d"
PATIENCE = ("--deadline", "4s", "--read-timeout", "1500ms", "--connect-timeout", "2s")
PATIENCE += ("--retries", "1", "--backoff", "50ms", "--max-size", "1M", "--workers", "1", "-vv")


def forms(secret: str) -> list[bytes]:
    """As it is, and as Basic credentials of `me` have it (what does not depend on what stands before)."""
    return [secret.encode(), base64.b64encode(f"me:{secret}".encode())[4:-4]]


def seen_of(session: int, argv: list[str], over: threading.Event, found: list[bytes]) -> None:
    """What /proc shows of the processes of ``session`` and is not what was typed."""
    typed = "\0".join(argv).encode() + b"\0"
    while not over.wait(0.05):
        for pid in members(session):
            try:
                shown = Path(f"/proc/{pid}/cmdline").read_bytes()
                found.append(shown if shown != typed else b"")
                found.append(Path(f"/proc/{pid}/comm").read_bytes())
            except OSError:
                continue


def lines(port: int, untrusted: int) -> list[str]:
    """The files: each on a host of its own, the secret in the query, the path's user or both."""
    found = []
    for number, name in enumerate(CASES, 1):
        host = f"127.0.1.{number}:{port}"
        user = f"me:{URL}@" if number % 3 == 0 else ""
        found.append(f"http://{user}{host}/get/{name}?token={URL}&sig={URL}")
    found += [
        f"https://127.0.0.1:{untrusted}/x?token={URL}",
        f"http://127.0.0.1:1/refused?token={URL}",
        f"http://no.invalid/x?api_key={URL}",
        f"http://me:{URL}@[::1/x",
        f"ftp://me:{URL}@h/x",
    ]
    return found


@pytest.mark.parametrize("way", ["straight", "by proxy"])
def test_no_secret_is_told(way: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    netrc = tmp_path / "netrc"
    netrc.write_text(f"default login me password {NETRC}\n")
    netrc.chmod(0o600)
    out = tmp_path / "out"
    out.mkdir()

    def rows(request: Request) -> list[Step]:
        # To a proxy the whole URL is sent; it answers in the place of the host.
        name = request.target.partition("?")[0].rpartition("/")[2]
        answer = (
            HOPS.get(request.target.partition("?")[0]) or CASES[name if name in CASES else "404"].answer
        )
        return list(answer.answers[0] if hasattr(answer, "answers") else answer)  # type: ignore[arg-type]

    with (
        Server(default=rows, host="0.0.0.0") as server,
        Server(tls=certificates.context(Tls.UNKNOWN_CA)) as untrusted,
    ):
        options = ["-H", f"X-Api-Key: {HEADER}", "-H", f"Authorization: Bearer {HEADER}", "--netrc"]
        if way == "by proxy":
            options += ["--proxy", f"http://me:{PROXY}@127.0.0.1:{server.port}"]
        source = tmp_path / "list.txt"
        source.write_text("\n".join(lines(server.port, untrusted.port)))
        argv = command(source, "-o", out / "d", *PATIENCE, *options, "--report", out / "r.json")
        argv += ["--failures", str(out / "f.jsonl")]
        job = Job(*argv, env={"NETRC": str(netrc)}, stdin=subprocess.DEVNULL)
        over, shown = threading.Event(), []
        watcher = threading.Thread(target=seen_of, args=(job.pid, argv, over, shown))
        watcher.start()
        try:
            code = job.wait()
        finally:
            over.set()
            watcher.join()
            told = job.out + job.err
            job.close()
        if way == "by proxy":
            sent = [request.header("Proxy-Authorization") or "" for request in server.requests]
            assert any(base64.b64encode(f"me:{PROXY}".encode()).decode() in each for each in sent)
        assert any(request.header("X-Api-Key") == HEADER for request in server.requests)
    assert code == 1, told
    report = json.loads((out / "r.json").read_text())
    assert len(report["failed_by_error"]) > (12 if way == "straight" else 8), report["failed_by_error"]
    assert shown
    everything = b"\n".join([told.encode(), left_in(out), *shown])
    for secret in (URL, HEADER, NETRC, PROXY):
        for form in forms(secret):
            assert form not in everything, everything[max(everything.find(form) - 200, 0) :][:400]


def test_a_program_that_calls_download_shows_nothing(tmp_path: Path) -> None:
    """``download()`` starts a fresh process; what it is to do does not travel on its command line."""
    program = (
        "import sys, downloader\n"
        "header = (('X-Api-Key', sys.stdin.readline().strip()),)\n"
        "config = downloader.Config(source=sys.argv[1], output=sys.argv[2], headers=header, workers=1)\n"
        "print(downloader.download(config).exit_code)\n"
    )
    from servers import Pause, listing, ok

    with Server({"/list": listing(["a"])}, default=[Pause(1), *ok()]) as server:
        argv = [sys.executable, "-c", program, server.url, str(tmp_path / "d")]
        process = subprocess.Popen(
            argv, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        over, shown = threading.Event(), []
        watcher = threading.Thread(target=seen_of, args=(process.pid, argv, over, shown))
        watcher.start()
        try:
            out, _ = process.communicate(f"{HEADER}\n", timeout=100)
        finally:
            over.set()
            watcher.join()
        assert server.seen("/get/a")[0].header("X-Api-Key") == HEADER
    assert out.strip() == "0"
    assert shown
    assert HEADER.encode() not in b"\n".join(shown)
