"""Measure a host that always answers 503 to three files in ten: no other may be lost, or wait for these.

``python -m benchmarks.refusing`` is its server, which prints its URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rounds import scratch
from benchmarks.running import ROOT, cores, environment, pinned, run

__all__ = ["refusing", "serve"]

_FILES, _FEW = 2_000, 200
_GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + bytes(100)
_BAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


def _is_bad(number: int) -> bool:
    return hashlib.md5(b"%d" % number, usedforsecurity=False).digest()[0] * 10 < 3 * 256


class _Refusing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        *heads, self._received = (self._received + data).split(b"\r\n\r\n")
        answers = [_BAD if _is_bad(int(head.split(b" ", 2)[1][2:])) else _GOOD for head in heads]
        self._transport.write(b"".join(answers))


async def serve() -> None:
    """Serve /f0, /f1, … until the process is stopped."""
    server = await asyncio.get_running_loop().create_server(_Refusing, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" + "\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextlib.contextmanager
def _server() -> Iterator[str]:
    command = pinned(cores("origin"), [sys.executable, "-m", "benchmarks.refusing"])
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait()


def refusing(quick: bool) -> list[dict[str, str]]:
    """Fetch a list of which three files in ten cannot be had: without retries, with five (quick: one)."""
    files = _FEW if quick else _FILES
    good = sum(not _is_bad(number) for number in range(files))
    rows = []
    for retries in (0, 1) if quick else (0, 5):
        with _server() as url, scratch() as where:
            listed = where / "urls.txt"
            listed.write_text("".join(f"{url}/f{number}\n" for number in range(files)))
            beside = _curl(url, files, retries, where) if shutil.which("curl") else None
            argv = [sys.executable, "-m", "downloader", str(listed), "-o", str(where / "out"), "--json"]
            argv += [
                "--retries",
                str(retries),
                "--workers",
                "1",
                "--connections",
                "32",
                "--progress",
                "none",
            ]
            argv += ["--failures", str(where / "failed.jsonl")]
            ended = run(argv, cores("client"), timeout=120)
        if ended.exit_code != 1:
            raise RuntimeError(f"exit code {ended.exit_code}: {ended.stderr}")
        report = json.loads(ended.stdout)
        attempts = good + (files - good) * (1 + retries)
        if (report["stored"], report["requests"]) != (good, attempts):
            raise RuntimeError(f"{good} files can be had, in {attempts} requests: {report}")
        rows.append(
            {
                "what": f"{files:,} files, {files - good:,} of them always 503, --retries {retries}",
                "figure": f"{ended.seconds:.1f} s; {good:,} stored in {attempts:,} requests",
                "beside": f"curl --parallel --retry {retries}: {beside:.1f} s" if beside else "",
                "ratio": f"{beside / ended.seconds:.2f} × curl" if beside else "",
            }
        )
    return rows


def _curl(url: str, files: int, retries: int, where: Path) -> float:
    """Return the seconds that curl takes."""
    (where / "curl").mkdir()
    config = where / "curl.config"
    lines = (f'url = "{url}/f{number}"\noutput = "{where}/curl/f{number}"\n' for number in range(files))
    config.write_text("".join(lines))
    argv = ["curl", "--silent", "--fail", "--parallel", "--parallel-max", "32", "--retry", str(retries)]
    return run([*argv, "--config", str(config)], cores("client"), timeout=120).seconds


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
