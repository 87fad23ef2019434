"""The records that cross a boundary: between processes, into the journal, out to the user.

All are frozen ``msgspec.Struct``: messages travel as MessagePack in length-prefixed frames, the
report is written as JSON. Bulk content (the items of a batch, the marks of what is stored) stays an
opaque ``bytes`` on its way through the supervisor, so that its work does not depend on how many files
a batch has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

__all__ = [
    "BATCH_ITEMS",
    "Batch",
    "BatchDone",
    "Continue",
    "Credit",
    "Drain",
    "Ended",
    "Failure",
    "FileRecord",
    "Finish",
    "FromChild",
    "Heartbeat",
    "HostPause",
    "Item",
    "Lease",
    "Log",
    "Message",
    "Outcome",
    "Page",
    "Rate",
    "Ready",
    "Recall",
    "Report",
    "ResponseInfo",
    "Returned",
    "Stop",
    "Tally",
    "ToChild",
]

BATCH_ITEMS = 1000


class Item(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One file to fetch.

    ``name`` is a safe relative path (``core.naming``): segments escaped, joined by ``/``.
    ``url`` is empty where the source derives it from the name. ``size`` is what the source promises,
    -1 where it does not; so is ``checksum``, ``ALGORITHM:HEX`` (``core.content_check``), "" where it does
    not. ``columns`` is MessagePack of what else the source says of the item. ``fault`` is a failure code
    found while reading the source (a bad line, a name that cannot be stored): such an item is counted
    failed without a request. ``detail`` is for a person, redacted.
    """

    name: str
    url: str = ""
    size: int = -1
    fault: str = ""
    detail: str = ""
    checksum: str = ""
    columns: bytes = b""

    @property
    def promised(self) -> bool:
        """Whether the source says something of the content that must hold."""
        return self.size >= 0 or self.checksum != ""


class ResponseInfo(msgspec.Struct, frozen=True):
    """What a response says of a file, as the server spells it; "" where it says nothing.

    ``url`` is where the file came from after redirects, redacted; ``fetched_at`` is in seconds since 1970.
    """

    status: int
    url: str
    etag: str
    last_modified: str
    content_type: str
    fetched_at: float


class FileRecord(msgspec.Struct, frozen=True, array_like=True):
    """A file that is written, and what is known of it: of the item, and of the response.

    ``index`` is that of the item in its batch, ``url`` is redacted, ``crc`` is the CRC-32 of its bytes,
    ``checksum`` and ``columns`` are those of the item.
    """

    index: int
    name: str
    url: str
    size: int
    crc: int
    checksum: str
    columns: bytes
    response: ResponseInfo | None


class Page(msgspec.Struct, frozen=True):
    """What a source yields: at most ``BATCH_ITEMS`` items and the cursor behind them.

    Items that are names and nothing else may be given as ``names``, in place of ``items``.
    ``origin`` is what the source needs, besides the names, to make the same items again.
    ``position`` is how far into the source this is, 0 to 1, or -1 where that is not known.
    """

    items: list[Item]
    cursor: bytes
    origin: bytes = b""
    position: float = -1.0
    names: Sequence[str] | None = None


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """Counts that are added up: over batches, over runs. ``replaced``: of the stored, those in whose place
    a file stood that belonged to no item."""

    stored: int = 0
    skipped: int = 0
    failed: int = 0
    bytes: int = 0
    unverified: int = 0
    replaced: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.stored + other.stored,
            self.skipped + other.skipped,
            self.failed + other.failed,
            self.bytes + other.bytes,
            self.unverified + other.unverified,
            self.replaced + other.replaced,
        )

    @property
    def settled(self) -> int:
        """Items that have reached their end."""
        return self.stored + self.skipped + self.failed


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """One file that did not end stored. ``url`` is redacted."""

    index: int
    name: str
    url: str
    code: str
    detail: str
    attempts: int


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of everything that is sent between processes."""


# supervisor → feeder


class Recall(Message, frozen=True):
    """Make the items of an earlier batch again; sent in ascending order of ``seq``."""

    seq: int
    count: int
    names: bytes
    origin: bytes


class Continue(Message, frozen=True):
    """Read on from ``cursor`` (empty: from the start), after the last Recall.

    ``listed`` items came before it; ``seq`` is the number of the next batch.
    """

    cursor: bytes
    listed: int
    seq: int


# supervisor → feeder and worker


class Credit(Message, frozen=True):
    """Room for ``batches`` more: to the feeder, may send; from a worker, can take."""

    batches: int


class Finish(Message, frozen=True):
    """Nothing more will come; stop when done."""


# feeder → supervisor


class Batch(Message, frozen=True):
    """A batch of the source. ``items`` is MessagePack of ``list[Item]``; ``names`` the names alone;
    ``marks``: what an earlier reading of the source has stored of it (``core.item_states``).

    One that is ``recalled`` has a ``cursor`` only where it differs from what it was.
    """

    seq: int
    count: int
    cursor: bytes
    names: bytes
    origin: bytes
    items: bytes
    recalled: bool = False
    position: float = -1.0
    marks: bytes = b""


class Ended(Message, frozen=True):
    """The source was read to its end, or to --limit (``limited``)."""

    limited: bool = False


# supervisor → worker


class Lease(Message, frozen=True):
    """A batch to fetch, or what is left of one.

    ``only``: indices to fetch (empty: all). ``done``: what is known of the items (see
    ``core.item_states``): what is written is verified against the disk and not fetched; ``earlier``: those
    of them that an earlier run wrote. ``suspects``: indices that were in flight when two workers died;
    fetched one at a time, with nothing else in flight. ``poison``: indices to be failed as poison.
    ``replace``: indices whose own file is not trusted and is to be replaced, besides those that are OWNED.
    """

    seq: int
    count: int
    items: bytes
    only: tuple[int, ...] = ()
    done: bytes = b""
    earlier: bytes = b""
    suspects: tuple[int, ...] = ()
    poison: tuple[int, ...] = ()
    replace: tuple[int, ...] = ()


class Rate(Message, frozen=True):
    """This worker's share of --rate, in requests a second for one host."""

    per_second: float


class Drain(Message, frozen=True):
    """Start nothing new; finish or give back what is in flight within ``grace`` seconds."""

    grace: float


# worker ⇄ supervisor


class HostPause(Message, frozen=True):
    """Nobody sends a request to ``host`` for the next ``seconds``."""

    host: str
    seconds: float


# worker or feeder → supervisor


class Ready(Message, frozen=True):
    """The process is patched, safe and has its session; ``preflight`` says so in one line."""

    versions: dict[str, str]
    preflight: str


class Heartbeat(Message, frozen=True):
    """Alive. ``tally``: settled items of batches that are not reported yet; ``connections``: the most
    at one time; ``depths``: requests of the wire lane by the depth at which they were sent; ``stops``:
    why connections are not used deeper, and for how many origins."""

    tally: Tally
    connections: int
    depths: dict[int, int] = {}
    stops: dict[str, int] = {}


class Outcome(Message, frozen=True):
    """What came of a leased batch: counts, and ``marks`` as in ``core.item_states``."""

    seq: int
    tally: Tally
    requests: int
    wire: int
    retries: int
    errors: dict[str, int]
    latency: dict[int, int]
    marks: bytes


class BatchDone(Outcome, frozen=True):
    """The outcome of a whole batch, with the exceptions."""

    failures: list[Failure]


class Returned(Outcome, frozen=True):
    """A batch given back in a drain: what is published of it."""


class Log(Message, frozen=True):
    """A line for the person at the terminal. ``level``: debug, info, warning."""

    level: str
    text: str


class Stop(Message, frozen=True):
    """The run cannot go on: the exit code and the sentence; ``detail`` is a traceback for -vv.

    ``source_broke``: only the source failed, so what is listed can still be fetched.
    """

    exit_code: int
    text: str
    detail: str = ""
    source_broke: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did; the JSON form is a contract (docs/report.md)."""

    version: int = 1
    source: str
    destination: str
    complete: bool
    listed: int
    stored: int
    skipped: int
    failed: int
    unverified: int
    bytes: int
    seconds: float
    files_per_second: float
    requests: int
    retries: int
    attempts_by_error: dict[str, int]
    failed_by_error: dict[str, int]
    latency_ms: dict[str, float]
    lanes: dict[str, int]
    pipeline_depth: dict[str, Any]
    connections_peak: int
    workers: int
    worker_deaths: int
    cpu_seconds: float
    cpu_by_role: dict[str, float]
    peak_rss_mb: dict[str, float]
    resumed: bool
    replaced: int
    complete_since: str | None = None
    versions: dict[str, str]
    preflight: str
    exit_code: int
    stopped_by: str | None = None


ToChild = Recall | Continue | Credit | Finish | Lease | Rate | Drain | HostPause
FromChild = Ready | Heartbeat | Credit | Batch | Ended | BatchDone | Returned | HostPause | Log | Stop
