"""Define the records that pass between processes and into the journal.

All are frozen ``msgspec.Struct``: messages travel as MessagePack in length-prefixed frames. Bulk content
(the items of a batch, the marks of what is stored) stays opaque ``bytes`` in the supervisor, so that its
work does not depend on how many files a batch has.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = [
    "BATCH_ITEMS",
    "DUPLICATE",
    "Batch",
    "BatchDone",
    "Continue",
    "Credit",
    "Drain",
    "Earlier",
    "Ended",
    "Failure",
    "FileRecord",
    "Finish",
    "FromChild",
    "Heartbeat",
    "HostCrowded",
    "HostPause",
    "Item",
    "Lease",
    "Log",
    "Message",
    "Moved",
    "Narrowed",
    "OutOfOrder",
    "Outcome",
    "Page",
    "Rate",
    "Ready",
    "Recall",
    "Receiving",
    "ResponseInfo",
    "Returned",
    "Stop",
    "Tally",
    "ToChild",
    "Types",
]

BATCH_ITEMS = 1000
DUPLICATE = "duplicate"
"""The ``fault`` of an item that is skipped, since an earlier item has its name."""


class Earlier(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What is known of an item that is fetched again: its slice of the source, and its number there.

    ``key``: that of its sample, if there are shards. ``owned``: the file under its name is its own, and is
    damaged or missing; or ``foreign``: it was kept, and is not as it was. ``file``: which file that is, see
    ``core.item_states``.
    """

    slice: str
    number: int
    key: str = ""
    owned: bool = False
    file: int = 0
    foreign: bool = False


class Item(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One file to fetch.

    ``name`` is a safe relative path (``core.naming``): segments escaped, joined by ``/``. ``url`` is empty
    where the source derives it from the name. ``size`` is the size that the source promises, or -1.
    ``checksum`` is the checksum that it promises, ``ALGORITHM:HEX`` (``core.digests``), or "".
    ``columns`` is MessagePack of what else the source says about the item. ``fault`` is a failure code
    found while reading the source (a bad line, a name that cannot be stored): such an item is counted as
    failed without a request, except DUPLICATE, which is counted as skipped. ``detail`` is for a person,
    redacted. ``headers`` are sent with the request; their values are secrets. ``mirrors`` are further URLs
    of the same file, tried when ``url`` fails. ``earlier``: see there.
    """

    name: str
    url: str = ""
    size: int = -1
    fault: str = ""
    detail: str = ""
    checksum: str = ""
    columns: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    mirrors: tuple[str, ...] = ()
    earlier: Earlier | None = None


class ResponseInfo(msgspec.Struct, frozen=True):
    """The metadata of a file in a response, as the server spells it; "" where there is none.

    ``url`` is where the file came from after redirects, redacted; ``redirected``: there was one.
    ``fetched_at`` is in seconds since 1970.
    """

    status: int
    url: str
    etag: str
    last_modified: str
    content_type: str
    fetched_at: float
    redirected: bool = False


class FileRecord(msgspec.Struct, frozen=True, array_like=True):
    """A written file, with what the item and the response say about it.

    ``index`` is that of the item in its batch, ``url`` is redacted, ``crc`` is the CRC-32 of its bytes,
    ``checksum`` and ``columns`` are those of the item. ``hash`` is the digest that --hash asks for,
    ``ALGORITHM:HEX``, or "".
    """

    index: int
    name: str
    url: str
    size: int
    crc: int
    checksum: str
    columns: bytes
    response: ResponseInfo | None
    hash: str = ""


class Page(msgspec.Struct, frozen=True):
    """A page of a source: at most ``BATCH_ITEMS`` items and the cursor behind them.

    Items that have nothing but a name may be given as ``names``, in place of ``items``. ``recall_data``
    is what the source needs, besides the names, to make the same items again. ``position`` is the position
    in the source, 0 to 1, or -1 where that is not known. ``note`` is a line for the user.
    """

    items: list[Item]
    cursor: bytes
    recall_data: bytes = b""
    position: float = -1.0
    names: Sequence[str] | None = None
    note: str = ""


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """Counts that are added up over batches and over runs.

    ``replaced``: how many of the stored files replaced a file that belonged to no item; ``encoded``: how
    many are in a content coding that was not requested; ``doubtful``: how many may have the body of another
    file, since their server was found to answer out of order.
    """

    stored: int = 0
    skipped: int = 0
    failed: int = 0
    bytes: int = 0
    unverified: int = 0
    replaced: int = 0
    encoded: int = 0
    doubtful: int = 0

    @property
    def fetched(self) -> int:
        """Return how many files were stored or have failed."""
        return self.stored + self.failed

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.stored + other.stored,
            self.skipped + other.skipped,
            self.failed + other.failed,
            self.bytes + other.bytes,
            self.unverified + other.unverified,
            self.replaced + other.replaced,
            self.encoded + other.encoded,
            self.doubtful + other.doubtful,
        )

    def less(self, other: Tally) -> Tally:
        """Return the counts without those of ``other``, each at least 0."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Tally(*(max(count - taken, 0) for count, taken in pairs))

    @property
    def settled(self) -> int:
        """Return the number of finished items."""
        return self.stored + self.skipped + self.failed


class Receiving(msgspec.Struct, frozen=True, array_like=True):
    """The bodies that arrive now, of files that are not finished.

    ``bytes`` have arrived, of so many ``files``. ``missing``: how many bytes are known to be missing, of
    ``known`` of these files.
    """

    bytes: int = 0
    files: int = 0
    missing: int = 0
    known: int = 0

    def __add__(self, other: Receiving) -> Receiving:
        return Receiving(
            self.bytes + other.bytes,
            self.files + other.files,
            self.missing + other.missing,
            self.known + other.known,
        )


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """One file that was not stored. ``url`` is redacted."""

    index: int
    name: str
    url: str
    code: str
    detail: str
    attempts: int


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of all messages between processes."""


# supervisor → feeder


class Recall(Message, frozen=True):
    """A request to make the items of an earlier batch again; sent in ascending order of ``seq``."""

    seq: int
    count: int
    names: bytes
    recall_data: bytes


class Continue(Message, frozen=True):
    """A request to read on from ``cursor`` (empty: from the start), after the last Recall.

    ``listed`` items precede it; ``seq`` is the number of the next batch. ``multiple``: a batch ends
    wherever the number of listed items is a multiple of it, if it is not 0.
    """

    cursor: bytes
    listed: int
    seq: int
    multiple: int = 0


# supervisor → feeder and worker


class Credit(Message, frozen=True):
    """Room for ``batches`` more.

    The feeder that receives it may send them; the worker that sends it can take them.
    """

    batches: int


class Finish(Message, frozen=True):
    """An announcement that nothing more will come; the child stops when done."""


# feeder → supervisor


class Batch(Message, frozen=True):
    """A batch of the source.

    ``items`` is MessagePack of ``list[Item]``; ``names`` are the names alone; ``marks`` is what an earlier
    reading of the source has stored of it (``core.item_states``). A batch that is ``recalled`` has a
    ``cursor`` only where it differs from what it was. ``digests``: see ``core.item_digests``; b"" where the
    names alone tell items apart.
    """

    seq: int
    count: int
    cursor: bytes
    names: bytes
    recall_data: bytes
    items: bytes
    recalled: bool = False
    position: float = -1.0
    marks: bytes = b""
    digests: bytes = b""


class Types(Message, frozen=True):
    """The types of kept columns (``core.column_types``), as JSON: those of all batches that follow."""

    text: str


class Ended(Message, frozen=True):
    """The end of the source, or of what --limit allows (``limited``)."""

    limited: bool = False


# supervisor → worker


class Lease(Message, frozen=True):
    """A batch to fetch, or what is left of one.

    ``only``: indices to fetch (empty: all). ``done``: what is known of the items (see
    ``core.item_states``): written items are verified against the disk and not fetched. ``earlier``: those
    of them that an earlier run wrote. ``suspects``: indices that were in flight when two workers died;
    fetched one at a time, with nothing else in flight. ``poison``: indices to fail as poison. ``replace``:
    indices whose own file may be damaged and is to be replaced, in addition to those that are OWNED.
    ``shards``, where the sink has shards: the first one is that of the batch, and gives its items their
    keys; the last one is the one to write. ``narrowed``: see ``Narrowed``; ``core.lease_items`` reads
    ``items`` then. ``types``: of their kept columns, see ``Types``.
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
    shards: tuple[int, ...] = ()
    narrowed: bool = False
    types: str = ""


class Rate(Message, frozen=True):
    """This worker's share of --rate, in requests a second for one host."""

    per_second: float


class Drain(Message, frozen=True):
    """A request to start nothing new, and to finish or return what is in flight in ``grace`` seconds.

    For responses that are held it may take longer: see ``core.pipeline_window``."""

    grace: float


# worker ⇄ supervisor


class HostPause(Message, frozen=True):
    """A pause: no worker sends a request to ``host`` for the next ``seconds``."""

    host: str
    seconds: float


class HostCrowded(Message, frozen=True):
    """A notice that ``host`` takes no connection of this worker, and has connections of others.

    They close those that are idle, now and in the next ``seconds``.
    """

    host: str
    seconds: float


class OutOfOrder(Message, frozen=True):
    """``host`` answers several requests on one connection out of order.

    ``files``: how many files the worker has stored that may have the bodies of others.
    """

    host: str
    files: int = 0


class Moved(Message, frozen=True):
    """``host`` sent a response that nobody asked for, on a connection with one request in flight at a time.

    ``files``: how many files the worker has stored from it that may have the bodies of others.
    """

    host: str
    files: int


# worker or feeder → supervisor


class Ready(Message, frozen=True):
    """A notice that the process is patched, safe and has its session.

    ``preflight`` says so in one line. A plain child has nothing to say; see ``process.spawn``.
    """

    versions: dict[str, str]
    preflight: str


class Heartbeat(Message, frozen=True):
    """A sign of life.

    ``tally``: finished items of batches that are not reported yet. ``connections``: the maximum at one
    time. ``depths``: requests of the pipelined client by the depth at which they were sent. ``stops``: why
    connections are not used deeper, and for how many origins. ``waiting``: how many files wait for hosts
    that pause or do not answer. ``hosts``: a hash of each of these hosts, since other workers may wait for
    the same. ``limit``: the maximum of connections that the worker allowed itself at any time and now, and
    why not more. ``receiving``: the bodies that arrive now.
    """

    tally: Tally
    connections: int
    depths: dict[int, int] = {}
    stops: dict[str, int] = {}
    waiting: int = 0
    hosts: tuple[int, ...] = ()
    limit: tuple[int, int, str] = (0, 0, "")
    receiving: Receiving = Receiving()


class Outcome(Message, frozen=True):
    """The outcome of a leased batch: counts, and ``marks`` as in ``core.item_states``."""

    seq: int
    tally: Tally
    requests: int
    pipelined: int
    retries: int
    errors: dict[str, int]
    latency: dict[int, int]
    marks: bytes


class BatchDone(Outcome, frozen=True):
    """The outcome of a whole batch, with its failures."""

    failures: list[Failure]


class Narrowed(Outcome, frozen=True):
    """The outcome so far of a batch whose last items take long: others get its slot in the ledger.

    ``lease`` is what is left of it, which its worker still holds. The counts and ``failures`` are those of
    the items that are finished. They will not be reported again, except where the sink has shards: then
    ``lease`` has all items, and nothing is counted yet.
    """

    failures: list[Failure]
    lease: Lease


class Returned(Outcome, frozen=True):
    """The outcome of a batch that is returned in a drain: what is published of it."""


class Log(Message, frozen=True):
    """A line for the user at the terminal. ``level``: debug, info, warning.

    ``shared``: it concerns all workers, of which each may find it.
    """

    level: str
    text: str
    shared: bool = False


class Stop(Message, frozen=True):
    """An error that ends the run: the exit code and the sentence; ``detail`` is a traceback for -vv.

    ``source_broke``: only the source failed, so listed items can still be fetched.
    """

    exit_code: int
    text: str
    detail: str = ""
    source_broke: bool = False


ToChild = Recall | Continue | Credit | Finish | Lease | Rate | Drain | HostPause | HostCrowded | OutOfOrder
FromChild = (
    Ready
    | Heartbeat
    | Credit
    | Types
    | Batch
    | Ended
    | BatchDone
    | Narrowed
    | Returned
    | HostPause
    | HostCrowded
    | Moved
    | OutOfOrder
    | Log
    | Stop
)
