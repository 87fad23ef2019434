"""The table of options: each is one field, with all that parsing, range checks and help need.

The fields stand in parts, and a Config has all of them. A function that takes a part says what it depends
on. The command line makes its options of these rows, in this order.
"""

from __future__ import annotations

import os
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from downloader.config.machine import usable_cpus
from downloader.config.option import Option, option, part, rows
from downloader.core.bucket_place import is_bucket
from downloader.core.digests import HASHES
from downloader.core.limits import (
    DEEPEST_PIPELINE,
    LARGEST_INTEGER,
    LONGEST_TIME,
    MOST_ADAPTIVE_CONNECTIONS,
    MOST_CONNECTIONS,
    MOST_WORKERS,
)
from downloader.core.redact import redact_url
from downloader.core.retry import RetryPolicy
from downloader.core.units import parse_count, parse_rate, parse_size, parse_time
from downloader.core.words import Existing

if TYPE_CHECKING:
    from downloader.config.named_files import NamedFiles

    class AnyPath:
        """The type of a path to a type checker: set as text or os.PathLike, read as text."""

        def __get__(self, config: object, owner: object = None) -> str: ...

        def __set__(self, config: object, value: str | os.PathLike[str]) -> None: ...

else:
    AnyPath = str

__all__ = [
    "OPTIONS",
    "PARTS",
    "PATHS",
    "SECTIONS",
    "SUMS",
    "ClusterOptions",
    "HttpOptions",
    "LimitOptions",
    "OutputOptions",
    "ReportOptions",
    "SourceOptions",
    "manifest_format",
]

_PLACES: Final = "Source and destination"
_LIMITS: Final = "Concurrency, retries and timeouts"
_REQUESTS: Final = "Requests"
_MACHINES: Final = "Many machines"
_REPORTS: Final = "Progress and reports"
SECTIONS: Final = (_PLACES, _LIMITS, _REQUESTS, _MACHINES, _REPORTS)
"""The sections of the help."""

SUMS: Final = "SHA256SUMS"
"""The name of a manifest that sha256sum reads."""

_SUFFIXES: Final = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_NO_PATH: Any = ""
Layout = Literal["flat", "hashed", "mirror"]
Resolver = Literal["auto", "system", "cares"]
Lane = Literal["auto", "requests"]
Checksums = Literal["off", "list", "all"]
Progress = Literal["auto", "bar", "plain", "none"]
Preflight = Literal["auto", "probe", "off"]
Engine = Literal["local", "ray"]
Respected = Literal["x-robots-tag"]


def manifest_format(path: str) -> str:
    """Return the format of the manifest ``path``, "" if its name is that of none."""
    leaf = os.path.basename(path)
    return SUMS if leaf == SUMS else _SUFFIXES.get(os.path.splitext(leaf)[1], "")


def _one_of(words: Any) -> dict[str, Any]:
    """Return how an option is one of ``words``, a Literal or a sequence."""
    return {"words": tuple(get_args(words) or words)}


def _count(minimum: int, maximum: int, **word: int) -> dict[str, Any]:
    """Return how an option is a whole number within a range; ``word`` stands for numbers."""

    def parse(text: str) -> int:
        try:
            return word[text] if text in word else parse_count(text, minimum, maximum)
        except ValueError as error:
            raise ValueError("; or ".join([str(error), ", or ".join(word)]) if word else error) from None

    return {"type": parse, "minimum": minimum, "maximum": maximum}


def _seconds(*, above: bool = False) -> dict[str, Any]:
    """Return how an option is a time; ``above``: more than 0."""
    return {
        "type": parse_time,
        "metavar": "TIME",
        "above" if above else "minimum": 0.0,
        "maximum": LONGEST_TIME,
    }


def _size(parse: Any = parse_size) -> dict[str, Any]:
    return {"type": parse, "metavar": "SIZE", "minimum": 0, "maximum": LARGEST_INTEGER}


def _limit(text: str) -> int:
    if not (size := parse_size(text)):
        raise ValueError(f"{text[:40]!r} would refuse every file; for no limit leave the option out")
    return size


def _respect(text: str) -> tuple[str, ...]:
    """Return the words of a comma list of what responses say. Raises ValueError."""
    words = tuple(word.strip() for word in text.split(",")) if text else ()
    for word in words:
        if word not in get_args(Respected):
            raise ValueError(f"{word[:40]!r} is not known; what can be respected is x-robots-tag")
    return words


@part
class OutputOptions:
    """Where and how files are stored, and what is verified of each."""

    output: AnyPath = option(
        default=_NO_PATH,
        help="Directory; created if absent.",
        section=_PLACES,
        written="-o --output",
        metavar="DEST",
    )
    journal: AnyPath = option(
        default=_NO_PATH,
        help="Directory of the journal and of unfinished shards; s3://… with --engine ray.  [DEST]",
        section=_PLACES,
        metavar="DIR",
    )
    journal_endpoint_url: str = ""  # of a journal in a bucket
    journal_region: str = ""
    store: str = option(
        default="files",
        help="local: on the disks of nodes, with --engine ray; null: fetch, count, discard.",
        section=_PLACES,
    )
    store_options: dict[str, Any] = field(default_factory=dict)
    layout: Layout = option(
        default="flat",
        help="name; ab/cd/name by a hash of the name; host/path/name.",
        section=_PLACES,
        how=_one_of(Layout),
    )
    restart: bool = option(
        default=False,
        help="Continue from DEST's journal, or discard it.",
        section=_PLACES,
        written="--resume/--restart",
    )
    retry_failed: bool = option(
        default=False, help="Fetch only files that the journal records as failed.", section=_PLACES
    )
    relist: bool = option(
        default=False,
        help="Read SOURCE again; files in DEST and its journal need no request.",
        section=_PLACES,
    )
    existing: Existing = option(
        default="replace",
        help="What to do with other files in DEST that have a name of SOURCE.",
        section=_PLACES,
        how=_one_of(Existing),
    )
    checksums: Checksums = option(
        default="list",
        help="Verify those of the list; all: also those that responses state.",
        section=_PLACES,
        how=_one_of(Checksums),
    )
    hash: str = option(
        default="",
        help="Compute one for every file, for a manifest: sha256, blake3, …",
        section=_PLACES,
        metavar="ALG",
        how=_one_of(HASHES),
    )
    fsync: bool = option(
        default=False, help="Files counted as stored survive a power failure.", section=_PLACES
    )

    @property
    def journal_root(self) -> str:
        """Return the directory that has the tool's own files, under ``.downloader/``."""
        return self.journal or self.output

    @property
    def is_bucket(self) -> bool:
        """Return whether DEST is a bucket."""
        return is_bucket(self.output)

    @property
    def local_output(self) -> str:
        """Return the directory of the stored files; that of the journal where they are in a bucket."""
        return self.journal if self.is_bucket else self.output


@part
class SourceOptions:
    """What is listed, and how much of it is fetched."""

    source: AnyPath = _NO_PATH
    source_type: str = option(
        default="",
        help="Kind of SOURCE.  [detected from its form]",
        section=_PLACES,
        written="--source",
        later=("s3", "index"),
    )
    source_options: dict[str, Any] = field(default_factory=dict)
    limit: int = option(
        default=0,
        help="Only the first N files of SOURCE.",
        section=_PLACES,
        metavar="N",
        how=_count(1, 10**15),
    )
    max_size: int = option(default=0, help="A larger file fails.", section=_PLACES, how=_size(_limit))
    dry_run: bool = option(default=False, help="List and count, store nothing.", section=_PLACES)

    @property
    def shown_source(self) -> str:
        """Return the source without secrets, as text that can be encoded."""
        source = redact_url(self.source) if "://" in self.source else self.source
        return source.encode("utf-8", "backslashreplace").decode()


@part
class LimitOptions:
    """How many processes, connections and requests there are, how often and for how long it is tried.

    0 for a number that is not given.
    """

    workers: int = option(
        default=0,
        help="Processes.  [usable CPUs, no more than a CPU quota allows]",
        section=_LIMITS,
        metavar="N",
        how=_count(1, MOST_WORKERS),
    )
    connections: int = option(
        default=0,
        help="Maximum open connections per worker; auto: 32, and more while that is faster.",
        section=_LIMITS,
        metavar="N|auto",
        shown="auto",
        how=_count(1, MOST_CONNECTIONS, auto=0),
    )
    per_host: int = option(
        default=0,
        help="Maximum of those to one host.  [all; 8 for a list over many hosts]",
        section=_LIMITS,
        metavar="N",
        how=_count(1, MOST_CONNECTIONS),
    )
    resolver: Resolver = option(
        default="auto",
        help="How names are looked up; auto: c-ares where the system asks files and DNS only.",
        section=_LIMITS,
        how=_one_of(Resolver),
    )
    dns_server: str = option(
        default="", help="Ask this name server, with c-ares.", section=_LIMITS, metavar="ADDR"
    )
    pipeline: int = option(
        default=0,
        help="Requests in flight on one connection.",
        section=_LIMITS,
        metavar="auto|off|N",
        shown="auto",
        how=_count(1, DEEPEST_PIPELINE, auto=0, off=1),
    )
    lane: Lane = option(
        default="auto", help="requests: never the pipelined client.", section=_LIMITS, how=_one_of(Lane)
    )
    rate: float = option(
        default=0.0,
        help="Maximum requests a second to one host, by all workers.",
        section=_LIMITS,
        metavar="N",
        type=parse_rate,
        minimum=0,
        maximum=LARGEST_INTEGER,
    )
    retries: int = option(
        default=5, help="Retries of each file.", section=_LIMITS, metavar="N", how=_count(0, 10**6)
    )
    backoff: float = option(
        default=0.5, help="Wait before the first retry.", section=_LIMITS, shown="0.5s", how=_seconds()
    )
    max_retry_after: float = option(
        default=120.0, help="Maximum Retry-After to obey.", section=_LIMITS, shown="2m", how=_seconds()
    )
    connect_timeout: float = option(
        default=10.0,
        help="Maximum time to connect, per attempt.",
        section=_LIMITS,
        shown="10s",
        how=_seconds(above=True),
    )
    read_timeout: float = option(
        default=30.0,
        help="Maximum silence, per attempt.",
        section=_LIMITS,
        shown="30s",
        how=_seconds(above=True),
    )
    deadline: float = option(
        default=600.0,
        help="Maximum for a whole file, per attempt.",
        section=_LIMITS,
        shown="10m",
        how=_seconds(above=True),
    )
    min_speed: int = option(
        default=0, help="A body slower than SIZE a second, for 10 s, fails.", section=_LIMITS, how=_size()
    )
    stall_timeout: float = option(
        default=30.0, help="Silence after which a child process counts as stuck.", how=_seconds(above=True)
    )
    drain_grace: float = option(
        default=3.0, help="What files in flight may take when a run ends early.", how=_seconds()
    )

    @property
    def worker_count(self) -> int:
        """Return how many processes to fork: by default one for each CPU that this process may use."""
        return self.workers or usable_cpus()

    @property
    def max_connections(self) -> int:
        """Return the maximum number of connections of one worker."""
        return self.connections or MOST_ADAPTIVE_CONNECTIONS

    @property
    def retry_policy(self) -> RetryPolicy:
        """Return the options about retries as a RetryPolicy."""
        return RetryPolicy(self.retries, self.backoff, self.max_retry_after)


@part
class HttpOptions:
    """What requests contain, what they go through, and what is trusted and obeyed of the answers."""

    headers: tuple[tuple[str, str], ...] = option(
        default=(),
        help="Header to send to every host that SOURCE names (repeatable).",
        section=_REQUESTS,
        written="-H",
        metavar="'Name: value'",
        repeatable=True,
    )
    user_agent: str = option(default="", help="Instead of mass-downloader/VERSION.", section=_REQUESTS)
    netrc: AnyPath = option(
        default=_NO_PATH, help="Credentials from $NETRC or ~/.netrc.", section=_REQUESTS, is_flag=True
    )
    auth: tuple[str, str] | None = None
    auth_file: AnyPath = option(  # that `auth` was read from: nothing is written there
        default=_NO_PATH,
        help="File whose first line is user:password, for every host that SOURCE names.",
        section=_REQUESTS,
        metavar="FILE",
        is_path=True,
    )
    proxies: dict[str, str] = option(
        default={},
        help="Proxy of all requests; env: from the environment.",
        section=_REQUESTS,
        written="--proxy",
        metavar="URL|env",
    )
    no_proxy: str = ""
    cacert: AnyPath = option(
        default=_NO_PATH,
        help="CA certificates to trust instead, PEM; system: those of this system.",
        section=_REQUESTS,
        metavar="FILE|system",
        is_path=True,
    )
    cert: AnyPath = option(
        default=_NO_PATH, help="Client certificate, PEM.", section=_REQUESTS, metavar="FILE", is_path=True
    )
    key: AnyPath = option(
        default=_NO_PATH,
        help="Key of --cert, if in another file. Without --cert, index and name are those of --sample-key.",
        section=_REQUESTS,
        metavar="FILE",
        is_path=True,
        repeatable=True,
    )
    key_password: str = ""
    insecure: bool = option(default=False, help="Do not verify server certificates.", section=_REQUESTS)
    compressed: bool = option(
        default=False,
        help="Request gzip, deflate and, where installed, br and zstd; store decoded.",
        section=_REQUESTS,
    )
    redirects: int = option(
        default=5, help="Maximum hops.", section=_REQUESTS, metavar="N", how=_count(0, 100)
    )
    allow_private_redirects: bool = option(
        default=False, help="Follow redirects from public to private addresses.", section=_REQUESTS
    )
    robots: bool = option(
        default=False, help="Do not request what robots.txt of a host disallows.", section=_REQUESTS
    )
    respect: tuple[Respected, ...] = option(
        default=(),
        help="Do not store a response whose X-Robots-Tag refuses it (noai, noindex, …).",
        section=_REQUESTS,
        metavar="x-robots-tag",
        type=_respect,
    )
    preflight: Preflight = option(
        default="auto",
        help="Refuse a process whose HTTPS would be serialized; probe: measure it first.",
        section=_REQUESTS,
        how=_one_of(Preflight),
    )
    # The content of the files named above, as of when the Config was made.
    files: NamedFiles | None = None


@part
class ClusterOptions:
    """Which machines take part, and in what parts a job is given to them."""

    engine: Engine = option(
        default="local",
        help="ray: on all nodes of a Ray cluster, which share DEST and --journal.",
        section=_MACHINES,
        how=_one_of(Engine),
    )
    ray_address: str = option(
        default="auto",
        help="The cluster; auto: the one of this machine or of $RAY_ADDRESS; local: start one here.",
        section=_MACHINES,
        metavar="auto|ADDR|local",
    )
    slice_files: int = option(
        default=100_000,
        help="Files of a slice, the part of a job that a node runs at a time.",
        section=_MACHINES,
        metavar="N",
        how=_count(1, 10**7),
    )
    scratch: str = option(
        default="",
        help="Directory on the disk of each node, for journals of slices; may have $VARIABLES."
        "  [temporary]",
        section=_MACHINES,
        metavar="DIR",
    )


@part
class ReportOptions:
    """What is told, and where."""

    progress: Progress = option(
        default="auto",
        help="On stderr; auto: bar on a terminal that can draw it.",
        section=_REPORTS,
        how=_one_of(Progress),
    )
    report: AnyPath = option(
        default=_NO_PATH,
        help="Write the report there, too.",
        section=_REPORTS,
        metavar="FILE.json",
        is_path=True,
    )
    failures: AnyPath = option(
        default=_NO_PATH,
        help="A line for each failed file.",
        section=_REPORTS,
        metavar="FILE.jsonl",
        is_path=True,
    )
    manifest: AnyPath = option(
        default=_NO_PATH,
        help="A row for each stored file: .jsonl, .csv, .parquet, or SHA256SUMS.",
        section=_REPORTS,
        metavar="FILE",
        is_path=True,
    )
    verbose: int = option(
        default=0,
        help="Each failed file on stderr; -vv: each retry and tracebacks, too.",
        section=_REPORTS,
        written="-v",
        is_count=True,
        minimum=0,
        maximum=LARGEST_INTEGER,
    )
    quiet: bool = option(
        default=False,
        help="No report or list of --dry-run but --json, and only errors on stderr.",
        section=_REPORTS,
        written="-q",
    )
    log_json: bool = option(default=False, help="Every line on stderr is JSON.", section=_REPORTS)

    @property
    def written_files(self) -> tuple[tuple[str, str], ...]:
        """Return the files that this run writes at its end: the option of each, and its path."""
        named = ("--report", self.report), ("--failures", self.failures), ("--manifest", self.manifest)
        return tuple((option, path) for option, path in named if path)

    @property
    def manifest_format(self) -> str:
        """Return the format of --manifest: jsonl, csv, parquet or SHA256SUMS; "" for another name."""
        return manifest_format(self.manifest)


PARTS: Final = (OutputOptions, SourceOptions, LimitOptions, HttpOptions, ClusterOptions, ReportOptions)
OPTIONS: Final[tuple[Option, ...]] = tuple(row for each in PARTS for row in rows(each))
"""The options of a run in the order of the help."""

PATHS: Final = tuple(
    each.name for part in PARTS for each in fields(part) if each.type == "AnyPath" and each.name != "source"
)
"""The fields that are paths, but ``source``."""
