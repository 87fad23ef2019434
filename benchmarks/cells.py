"""List the cells to measure, one per line.

A cell is a kind of server and of destination, the clients that are measured in turn, and the number of
files that each fetches (a client with a ``share`` fetches that part of them). ``quick`` is the number of
files in a quick run; 0 leaves the cell out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = ["CELLS", "CONNECTION_COUNTS", "Cell", "of_group"]


@dataclass(frozen=True)
class Cell:
    """A measurement. ``origin``: nginx where it is installed, or dev (the test server, also where nginx is
    missing).

    ``hosts``: the files are spread over that many hosts of the open web (``openweb``), of which some are
    ``dead``; 0: one server. ``jpegs``: the files are images, fetched as a list.

    ``rtt``: the round trip to the server, which ``relay`` adds; "0": none, and no relay.

    ``where``: memory, disk or null (discarded). ``cores``: apart (origin on one core, client on another) or
    shared (both may use all). A client counts as hung after ``patience`` seconds plus one second for every
    ``slowest`` files.
    """

    name: str
    group: str
    title: str
    clients: tuple[str, ...]
    size: int = 100
    files: int = 100_000
    quick: int = 0
    rounds: int = 5
    tls: bool = False
    delay: str = "0"
    rtt: str = "0"
    origin: str = "nginx"
    where: str = "memory"
    connections: int = 32
    cores: str = "apart"
    rate: float = 0.0
    patience: float = 30.0
    slowest: int = 1000
    hosts: int = 0
    dead: bool = False
    jpegs: bool = False


_OURS: Final = (
    "downloader",
    "downloader --pipeline off",
    "downloader --pipeline 16",
    "downloader --pipeline 64",
    "downloader --lane requests",
)
_PEERS: Final = (
    "curl --parallel",
    "wget2",
    "aria2",
    "pycurl multi",
    "aiohttp + uvloop",
    "aiohttp",
    "geventhttpclient",
    "httpx",
    "grequests",
    "requests in threads",
    "bare requests + gevent loop",
)
_STRATEGIES: Final = (
    "sequential",
    "threads (10)",
    "threads (100)",
    "processes",
    "asyncio",
    "combo",
)
_MAIN: Final = (
    "downloader",
    "downloader --pipeline off",
    "downloader --pipeline 64",
    "curl --parallel",
    "pycurl multi",
    "aiohttp + uvloop",
    "grequests",
)
_REST: Final = (*_OURS, *_PEERS)
_FEW: Final = (
    "downloader",
    "downloader --pipeline off",
    "curl --parallel",
    "pycurl multi",
    "aiohttp + uvloop",
)
_FASTEST: Final = ("downloader", "curl --parallel", "pycurl multi")
_DEPTHS: Final = (
    "downloader",
    "downloader --pipeline off",
    "downloader --pipeline 16",
    "downloader --pipeline 64",
)
_STREAMING: Final = ("downloader", "downloader --lane requests", "curl --parallel", "wget2", "aria2")
_PAIR: Final = ("downloader", "aiohttp + uvloop")
_SESSIONS: Final = ("downloader", "ten sessions: requests", "ten sessions: httpx", "ten sessions: aiohttp")
_WEB_CLIENTS: Final = (
    "downloader, list",
    "downloader, list --connections 256",
    "curl --parallel 64",
    "curl --parallel 256",
    "aria2 -j 64",
    "aiohttp + uvloop + aiodns",
    "urllib in 256 threads",
    "gevent pool of 128, c-ares",
)
_SHARDS: Final = ("downloader, list to tar", "img2dataset webdataset")
_SHARDS_OR_CRC: Final = (*_SHARDS, "downloader, list to tar --digests crc32")
_TAR_AND_FILES: Final = ("downloader", "downloader to tar", "downloader to tar --digests crc32")
_MANIFEST: Final = (*_TAR_AND_FILES, "downloader --manifest", "downloader to tar --manifest")
_IMAGES: Final = ("downloader, list", "img2dataset files")
CONNECTION_COUNTS: Final = ("8", "32", "128", "512", "1024", "auto")
"""Values of ``--connections`` that are compared; one that the program refuses is left out."""

_COUNTS: Final = tuple(f"downloader --connections {count}" for count in CONNECTION_COUNTS)
_STEADY: Final = ("downloader at a rate", "aiohttp at a rate")

_MILLION: Final = Cell("", "speed", "", _FASTEST, files=1_000_000, patience=60.0, slowest=8_000)
_DEPTH: Final = Cell("", "depth", "", _DEPTHS, files=200_000, where="null", rounds=3)
# At depth 1 the rate cannot exceed connections ÷ delay: there is nothing to measure.
_DEPTH_LATE: Final = replace(
    _DEPTH, clients=tuple(name for name in _DEPTHS if "off" not in name), delay="20ms", origin="dev"
)
_LARGE: Final = Cell("", "speed", "", _STREAMING, size=10**9, files=1, rounds=5)
_DELAYED: Final = Cell(
    "", "million", "", _PAIR, delay="0-3s", origin="dev", where="null", connections=1000, rounds=1
)
_AT_ONCE: Final = replace(_DELAYED, delay="0", rounds=3)
_PACED: Final = Cell("", "latency", "", _STEADY, where="null", rounds=3)
_TEN: Final = Cell(
    "",
    "sessions",
    "",
    _SESSIONS,
    files=1000,
    rounds=10,
    tls=True,
    origin="dev",
    where="null",
    connections=10,
)
_WEB: Final = Cell(
    "", "web", "", _WEB_CLIENTS, files=20_000, hosts=5_000, rounds=3, patience=120.0, slowest=100
)
_CONNECTIONS: Final = Cell(
    "", "connections", "", _COUNTS, files=100_000, where="null", rounds=3, patience=120.0, slowest=100
)

CELLS: Final = (
    Cell("http-100B", "speed", "HTTP, 100 B", _MAIN, files=200_000, quick=4_000),
    Cell("http-100B-peers", "speed", "HTTP, 100 B, all peers", _REST, files=100_000, rounds=3),
    Cell("https-100B", "speed", "HTTPS, 100 B", _FEW, tls=True, files=200_000, quick=2_000),
    replace(
        _MILLION, name="http-100B-1M", title="HTTP, 100 B, a million",
        clients=(*_FASTEST, "aiohttp + uvloop", "grequests"),
    ),
    replace(
        _MILLION, name="https-100B-500k", title="HTTPS, 100 B, half a million", files=500_000, tls=True
    ),
    Cell("http-100B-disk", "speed", "HTTP, 100 B, to disk", _FEW, where="disk", files=50_000),
    Cell("http-100B-null", "speed", "HTTP, 100 B, thrown away", _FEW, where="null"),
    Cell("http-10kB", "speed", "HTTP, 10 kB", _FEW, size=10_000, files=100_000),
    Cell("https-10kB", "speed", "HTTPS, 10 kB", _FEW, size=10_000, files=100_000, tls=True),
    Cell("http-1MB", "speed", "HTTP, 1 MB", _FEW, size=1_000_000, files=6_000, quick=50),
    Cell("https-1MB", "speed", "HTTPS, 1 MB", _FEW, size=1_000_000, files=6_000, tls=True),
    replace(_LARGE, name="http-1GB", title="HTTP, one file of 1 GB"),
    replace(_LARGE, name="https-1GB", title="HTTPS, one file of 1 GB", tls=True),
    Cell(
        "workers", "speed", "HTTP, 100 B, origin and client share all cores",
        ("downloader", "downloader --workers 2"), cores="shared", files=200_000, rounds=3,
    ),
    replace(_DEPTH, name="depth-http", title="HTTP"),
    replace(_DEPTH, name="depth-https", title="HTTPS", tls=True),
    replace(_DEPTH_LATE, name="depth-http-20ms", title="HTTP, each answer after 20 ms", files=200_000),
    replace(
        _DEPTH_LATE, name="depth-https-20ms", title="HTTPS, each answer after 20 ms", files=200_000,
        tls=True,
    ),
    # Enough files for what is reached, not how soon.
    replace(_CONNECTIONS, name="rtt-0", title="HTTP", files=400_000, quick=2_000),
    replace(_CONNECTIONS, name="rtt-20", title="HTTP, 20 ms away", rtt="20ms", files=1_000_000),
    replace(_CONNECTIONS, name="rtt-100", title="HTTP, 100 ms away", rtt="100ms", files=200_000),
    replace(
        _CONNECTIONS, name="slow-random", title="HTTP, each answer after 0–3 s", delay="0-3s", origin="dev",
        files=40_000,
    ),
    Cell(
        "billion", "billion", "the strategies of the talk",
        (*_STRATEGIES, "downloader --workers 2"), cores="shared", files=40_000, quick=2_000, rounds=3,
    ),
    replace(_AT_ONCE, name="million-1k", title="1,000", files=1_000, quick=1_000),
    replace(_AT_ONCE, name="million-10k", title="10,000", files=10_000),
    replace(_AT_ONCE, name="million-100k", title="100,000", files=100_000, rounds=1),
    replace(
        _AT_ONCE, name="million-1M", title="1,000,000", files=1_000_000, rounds=1,
        clients=("downloader",),
    ),
    replace(_DELAYED, name="delayed-1k", title="1,000", files=1_000, quick=1_000),
    replace(_DELAYED, name="delayed-10k", title="10,000", files=10_000, clients=(*_PAIR, "pycurl multi")),
    replace(_DELAYED, name="delayed-100k", title="100,000", files=100_000, connections=4_000),
    replace(
        _DELAYED, name="delayed-1M", title="1,000,000", files=1_000_000, connections=4_000,
        clients=("downloader",),
    ),
    replace(_TEN, name="sessions-40ms", title="each answer after 40 ms", delay="40ms", quick=300),
    replace(_TEN, name="sessions-0ms", title="answers at once"),
    replace(
        _PACED, name="latency-1000", title="1,000 requests a second", rate=1_000, files=10_000, quick=2_000
    ),
    replace(_PACED, name="latency-3000", title="3,000 requests a second", rate=3_000, files=30_000),
    replace(_WEB, name="web-http", title="HTTP, 5,000 hosts"),
    replace(_WEB, name="web-https", title="HTTPS, 5,000 hosts", tls=True, quick=400),
    replace(
        _WEB, name="web-https-dead", title="HTTPS, 5,000 hosts, some dead", tls=True, dead=True,
        patience=1_500.0,
    ),
    replace(
        _WEB, name="web-jpeg", title="HTTPS, JPEGs of 10 to 60 kB, 5,000 hosts", tls=True, jpegs=True,
        clients=(*_SHARDS, *_IMAGES), size=35_000,
    ),
    Cell(
        "jpeg-shards", "shards", "HTTP, JPEGs of 10 to 60 kB from one server, to tar", _SHARDS_OR_CRC,
        size=35_000, files=80_000, jpegs=True, patience=60.0, slowest=100,
    ),
    Cell("tar-100B", "shards", "HTTP, 100 B, to tar and into a directory", _MANIFEST, files=200_000),
    Cell(
        "tar-100B-disk", "shards", "HTTP, 100 B, to tar and into a directory, on disk", _TAR_AND_FILES,
        where="disk", files=200_000,
    ),
)  # fmt: skip


def of_group(group: str) -> list[Cell]:
    """Return the cells of ``group`` in the order in which they are run."""
    return [cell for cell in CELLS if cell.group == group]
