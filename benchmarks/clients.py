"""List the clients that are measured: the command line of each, and what must be installed for it.

A slow client gets a part of a cell's files (``share``), so that a round does not wait for it; figures are
per second. Peers read their URLs from a file, one per line, which is written before they start.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cells import CONNECTION_COUNTS
from benchmarks.job import Job
from benchmarks.jpegs import named_in_shards, stored_in_shards
from benchmarks.openweb.images import IMG2DATASET, img2dataset, stored

__all__ = ["CLIENTS", "Client", "Job", "missing"]


@dataclass(frozen=True)
class Client:
    """A client. ``needs``: a program, or a module; ``share``: the client fetches one in
    ``share`` files; ``stored`` yields names and contents where its files are not named after the URLs."""

    name: str
    argv: Callable[[Job], list[str]]
    share: int = 1
    needs: str = ""
    stored: Callable[[Job], Iterator[tuple[str, bytes]]] | None = None


def missing(client: Client) -> bool:
    """Return whether what ``client`` needs is not installed."""
    if not client.needs:
        return False
    if os.sep in client.needs:
        return not os.access(client.needs, os.X_OK)
    return shutil.which(client.needs) is None and importlib.util.find_spec(client.needs) is None


def _ours(*options: str, workers: int = 1, listed: bool = False) -> Callable[[Job], list[str]]:
    """Return the command line of our program; ``listed``: its source is the file of URLs."""

    def argv(job: Job) -> list[str]:
        source = str(job.urls) if listed else job.url
        command = [sys.executable, "-m", "downloader", source]
        command += ["-o", str(job.destination or job.room / "out")]
        command += ["--workers", str(workers), "--connections", str(job.connections)]
        command += ["--limit", str(job.files), "--json", "--progress", "none", *options]
        command += ["--store", "null"] if job.destination is None else []
        command += ["--rate", f"{job.rate:g}"] if job.rate else []
        command += ["--cacert", job.cafile] if job.cafile else []
        return command

    return argv


def _with_manifest(*options: str) -> Callable[[Job], list[str]]:
    """Return the command line of our program with a manifest beside its destination."""
    return lambda job: [*_ours(*options)(job), "--manifest", str(job.room / "manifest.jsonl")]


def _script(module: str, *options: str, connections: int | None = None) -> Callable[[Job], list[str]]:
    """Return the command line of a script of ``benchmarks/peers``; all take the same arguments: see
    ``peers/task.py``. ``connections``: instead of the cell's."""

    def argv(job: Job) -> list[str]:
        return [
            sys.executable, "-m", f"benchmarks.peers.{module}", str(job.urls), str(job.destination or "-"),
            str(connections or job.connections), job.cafile or "-", *options,
            *([f"{job.rate:g}"] if job.rate else []),
        ]  # fmt: skip

    return argv


def _strategy(module: str, *options: str) -> Callable[[Job], list[str]]:
    """Return the command line of a script of ``benchmarks/strategies``; they read the listing, as those of
    the talk did."""

    def argv(job: Job) -> list[str]:
        script = [sys.executable, "-m", f"benchmarks.strategies.{module}"]
        return [*script, job.url, str(job.destination), str(job.files), *options]

    return argv


def _bare(job: Job) -> list[str]:
    bare = Path(__file__).with_name("bare.py")
    return [sys.executable, str(bare), job.url, str(job.destination), str(job.files)]


def _curl(job: Job, connections: int | None = None, *options: str) -> list[str]:
    config = job.room / "curl.conf"
    with open(job.urls) as urls, open(config, "w") as file:
        for line in urls:
            url = line.strip()
            target = "/dev/null" if job.destination is None else job.destination / url.rpartition("/")[2]
            file.write(f'url = "{url}"\noutput = "{target}"\n')
    most = str(min(connections or job.connections, 300))  # curl's maximum
    command = [
        "curl",
        "--disable",
        "--parallel",
        "--parallel-max",
        most,
        "--silent",
        "--show-error",
        "--fail",
    ]
    command += options
    return [*command, *(["--cacert", job.cafile] if job.cafile else []), "--config", str(config)]


def _curl_web(connections: int) -> Callable[[Job], list[str]]:
    """Return curl's command line for many hosts: with as long to connect as our program allows."""
    return lambda job: _curl(job, connections, "--connect-timeout", "10")


def _wget2(job: Job) -> list[str]:
    command = [
        "wget2",
        "--no-config",
        "--quiet",
        "--progress=none",
        "--no-robots",
        "--no-hsts",
        "--no-ocsp",
    ]
    command += [f"--max-threads={job.connections}", f"--input-file={job.urls}"]
    command += [f"--directory-prefix={job.destination}"]
    return [*command, *([f"--ca-certificate={job.cafile}"] if job.cafile else [])]


def _aria2(job: Job, connections: int | None = None, *options: str) -> list[str]:
    command = ["aria2c", "--no-conf", "--quiet", "--no-netrc", "--split=1", "--file-allocation=none"]
    command += ["--auto-file-renaming=false", "--allow-overwrite=true", "--deferred-input=true"]
    command += [f"--max-concurrent-downloads={connections or job.connections}"]
    command += [f"--input-file={job.urls}", f"--dir={job.destination}", *options]
    return [*command, *([f"--ca-certificate={job.cafile}"] if job.cafile else [])]


def _aria2_web(connections: int) -> Callable[[Job], list[str]]:
    """Return aria2's command line for many hosts: like curl's, a failed file is not tried again."""
    return lambda job: _aria2(job, connections, "--connect-timeout=10", "--timeout=10", "--max-tries=1")


_TO_TAR: Final = ("--connections", "auto", "--store", "tar")

CLIENTS: Final = {
    client.name: client
    for client in (
        Client("downloader", _ours()),
        Client("downloader --pipeline off", _ours("--pipeline", "off")),
        Client("downloader --pipeline 16", _ours("--pipeline", "16")),
        Client("downloader --pipeline 64", _ours("--pipeline", "64")),
        Client("downloader --lane requests", _ours("--lane", "requests"), share=10),
        Client("downloader --workers 2", _ours(workers=2)),
        Client("downloader at a rate", _ours()),
        Client("curl --parallel", _curl, needs="curl"),
        Client("wget2", _wget2, share=4, needs="wget2"),
        Client("aria2", _aria2, share=10, needs="aria2c"),
        Client("pycurl multi", _script("pycurl_multi"), needs="pycurl"),
        Client("aiohttp + uvloop", _script("aiohttp_session", "uvloop"), share=4, needs="uvloop"),
        Client("aiohttp", _script("aiohttp_session"), share=4, needs="aiohttp"),
        Client("geventhttpclient", _script("gevent_httpclient"), share=4, needs="geventhttpclient"),
        Client("httpx", _script("httpx_client"), share=20, needs="httpx"),
        Client("grequests", _script("grequests_imap"), share=20, needs="grequests"),
        Client("requests in threads", _script("requests_threads"), share=20),
        Client("bare requests + gevent loop", _bare, share=10),
        Client("aiohttp at a rate", _script("aiohttp_rate"), needs="uvloop"),
        Client("ten sessions: requests", _script("ten_sessions", "requests")),
        Client("ten sessions: httpx", _script("ten_sessions", "httpx"), needs="httpx"),
        Client("ten sessions: aiohttp", _script("ten_sessions", "aiohttp"), needs="aiohttp"),
        Client("downloader, list", _ours("--connections", "auto", listed=True)),
        Client("downloader, list --connections 256", _ours("--connections", "256", listed=True)),
        Client("curl --parallel 64", _curl_web(64), needs="curl"),
        Client("curl --parallel 256", _curl_web(256), needs="curl"),
        Client("aria2 -j 64", _aria2_web(64), needs="aria2c"),
        Client("aiohttp + uvloop + aiodns", _script("aiohttp_hosts", connections=256), needs="aiodns"),
        Client("gevent pool of 128, c-ares", _script("gevent_hosts", connections=128)),
        Client("img2dataset files", img2dataset("files"), needs=str(IMG2DATASET), stored=stored),
        Client("img2dataset webdataset", img2dataset("webdataset"), needs=str(IMG2DATASET), stored=stored),
        Client("downloader to tar", _ours("--store", "tar"), stored=named_in_shards),
        Client(
            "downloader to tar --digests crc32",
            _ours("--store", "tar", "--digests", "crc32"),
            stored=named_in_shards,
        ),
        Client("downloader --manifest", _with_manifest()),
        Client("downloader to tar --manifest", _with_manifest("--store", "tar"), stored=named_in_shards),
        Client("downloader, list to tar", _ours(*_TO_TAR, listed=True), stored=stored_in_shards),
        Client(
            "downloader, list to tar --digests crc32",
            _ours(*_TO_TAR, "--digests", "crc32", listed=True),
            stored=stored_in_shards,
        ),
        Client("urllib in 256 threads", _script("urllib_threads", connections=256)),
        *(
            Client(f"downloader --connections {count}", _ours("--connections", count))
            for count in CONNECTION_COUNTS
        ),
        Client("sequential", _strategy("sequential"), share=20),
        Client("threads (10)", _strategy("threads", "10"), share=20),
        Client("threads (100)", _strategy("threads", "100"), share=20),
        Client("processes", _strategy("processes"), share=20),
        Client("asyncio", _strategy("asynchronous"), share=4, needs="uvloop"),
        Client("combo", _strategy("combo"), share=4, needs="uvloop"),
    )
}
