"""Define all errors, in one tree; imports nothing of ours.

::

    DownloaderError            .exit_code is the exit code of the process
    ├── ConfigError        2   usage or configuration; nothing was started
    │   └── InUse          2   another run owns the destination
    ├── UnsafeProcess      3   this process could not be made safe (patching, TLS trap)
    ├── BootError          3   a worker or the feeder could not start
    ├── SourceError        4   the listing or the list of URLs broke off
    ├── DestinationError   4   the destination failed (disk full, gone, read-only)
    └── JournalError       4   the journal failed or is damaged

    FetchError                     one attempt at one file failed; never propagates out of a worker

Exceptions never cross processes: a ``FetchError`` becomes a ``Failure`` record, the others a ``Stop``
record with the exit code and the sentence.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "FAILURES",
    "ROW_FAULTS",
    "UNDECODABLE",
    "Blame",
    "BootError",
    "ConfigError",
    "DestinationError",
    "DownloaderError",
    "FetchError",
    "InUse",
    "JournalError",
    "SourceError",
    "UnsafeProcess",
    "failure_kind",
]


UNDECODABLE: Final = (ValueError, RecursionError)
"""What a decoder of JSON or MessagePack raises for bytes that are not what was written.

Not msgspec.DecodeError alone: text that is not UTF-8 is a UnicodeDecodeError, nesting a RecursionError.
"""


class DownloaderError(Exception):
    """Base of all errors that end a run; the message is one sentence for a person."""

    exit_code = 4


class ConfigError(DownloaderError):
    """The command line or a ``Config`` is wrong; nothing was started."""

    exit_code = 2


class InUse(ConfigError):
    """Another run owns the destination."""


class UnsafeProcess(DownloaderError):
    """HTTPS would be serialized or broken in this process; the message names the culprit."""

    exit_code = 3


class BootError(DownloaderError):
    """A worker or the feeder could not start."""

    exit_code = 3


class SourceError(DownloaderError):
    """The source broke off: listing unreachable, malformed, or a list that changed or disappeared."""


class DestinationError(DownloaderError):
    """The destination failed: disk full, read-only, removed."""


class JournalError(DownloaderError):
    """The journal could not be written or read, or belongs to something else."""


class FetchError(Exception):
    """A failed attempt at one file.

    ``code`` is a key of ``FAILURES`` or ``http-NNN``. ``detail`` is for a person and already redacted.
    ``retry_after`` is in seconds where the server gave a time. ``requests`` is how many requests the
    attempt took, redirects included. ``origin`` is the host that failed, where a redirect led to another
    host than the file's. ``pipelined`` is how many of the requests the pipelined client sent.
    ``permanent``: no further attempt can succeed, whatever ``FAILURES`` says about the code.
    ``unreachable``: no packet came back in all of --connect-timeout. ``turned_away``: the connection was
    closed before anything had come on it, or was ended with this as its only response (``refuses``).
    ``sets_cookie``: which cookie the refusal changes first (``core.set_cookie.cookie_change``), "" for
    none, where nobody has read it yet.
    ``outdated``: the request had waited for so long behind a redirect that its URL may not hold any more.
    ``cookie_came``: by now there is a cookie for the request that it was sent without, by its name;
    ``cookie_renewed``: by now it has other cookies, whatever their names; ``cookieless``: it was sent
    without any.
    """

    def __init__(self, code: str, detail: str = "", retry_after: float | None = None) -> None:
        super().__init__(code, detail, retry_after)
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
        self.requests = 1
        self.origin = ""
        self.pipelined = 0
        self.permanent = False
        self.unreachable = False
        self.turned_away = False
        self.outdated = False
        self.sets_cookie = ""
        self.cookie_came = False
        self.cookie_renewed = False
        self.cookieless = False

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}" if self.detail else self.code

    @property
    def asks_to_wait(self) -> bool:
        """Return whether the host says by Retry-After that it wants no request before a time to come."""
        return self.code in _PAUSING and bool(self.retry_after)

    @property
    def of_file(self) -> bool:
        """Return whether it says that the host is well: it has answered, and the file is at fault."""
        return failure_kind(self.code).blame is Blame.FILE and not self.asks_to_wait

    @property
    def answered(self) -> bool:
        """Return whether the host has sent a status that means a failure."""
        return self.code.startswith("http-")

    @property
    def refuses(self) -> bool:
        """Return whether the server may grant the request on another connection, or later.

        One that ends a new connection with it may say so that it takes no more of them.
        """
        return self.answered and failure_kind(self.code).retry

    @property
    def transient(self) -> bool:
        """Return whether another attempt may succeed."""
        again = self.code in _PAUSING and self.retry_after is not None
        may = failure_kind(self.code).retry or again or (self.outdated and self.answered)
        return may and not self.permanent


class Blame(Enum):
    """What a failure says about the host, and so about its other files.

    FILE: nothing bad; it has answered, and the file is at fault. EITHER: the file is at fault while other
    requests to the host succeed; if none does, the host is down. HOST: it cannot be reached. NEITHER:
    nothing; the response took too long.
    """

    FILE = "file"
    EITHER = "either"
    HOST = "host"
    NEITHER = "neither"


class Kind(NamedTuple):
    """The policy for a failure code. ``retry``: another attempt may succeed."""

    retry: bool
    blame: Blame
    meaning: str


FAILURES: Final[dict[str, Kind]] = {
    "dns": Kind(True, Blame.HOST, "the host name does not resolve"),
    "connect": Kind(True, Blame.HOST, "the connection was refused or the host is unreachable"),
    "connect-timeout": Kind(True, Blame.HOST, "no connection within --connect-timeout"),
    "read-timeout": Kind(True, Blame.NEITHER, "the server sent nothing for --read-timeout"),
    "timeout": Kind(True, Blame.NEITHER, "the whole file took longer than --deadline"),
    "slow": Kind(True, Blame.NEITHER, "slower than --min-speed for 10 s"),
    "reset": Kind(True, Blame.EITHER, "the connection broke"),
    "truncated": Kind(True, Blame.EITHER, "fewer bytes arrived than were promised"),
    "protocol": Kind(True, Blame.EITHER, "the response is not valid HTTP"),
    "tls-verify": Kind(False, Blame.HOST, "the server's certificate cannot be verified"),
    "tls-version": Kind(
        False, Blame.HOST, "the server offers no TLS version that is accepted (1.2 or newer)"
    ),
    "tls-handshake": Kind(True, Blame.HOST, "the TLS handshake failed"),
    "proxy": Kind(True, Blame.HOST, "the proxy failed or refused"),
    "unexpected-status": Kind(False, Blame.FILE, "a status that is no valid response to a plain GET"),
    "size-mismatch": Kind(True, Blame.FILE, "the body has another size than the source says"),
    "checksum-mismatch": Kind(
        True, Blame.FILE, "the body has another checksum than the source or the response says"
    ),
    "bad-checksum": Kind(False, Blame.FILE, "the source gives a checksum that cannot be verified"),
    "too-large": Kind(
        *(False, Blame.FILE),
        "larger than --max-size, than --store parquet can have (2 GiB), or than DEST takes",
    ),
    "redirect-loop": Kind(False, Blame.FILE, "more than --redirects hops"),
    "redirect-refused": Kind(False, Blame.FILE, "a redirect that is not followed for safety"),
    "robots": Kind(False, Blame.FILE, "the robots.txt of the host does not allow it (--robots)"),
    "opted-out": Kind(False, Blame.FILE, "the response says that it is not to be used (--respect)"),
    "bad-url": Kind(False, Blame.FILE, "not an http(s) URL"),
    "bad-row": Kind(False, Blame.FILE, "a row of the list that cannot be read"),
    "bad-name": Kind(False, Blame.FILE, "the name cannot be stored safely"),
    "not-writable": Kind(
        *(False, Blame.FILE),
        "DEST does not take this file: permission, or what stands there is protected or busy",
    ),
    "name-taken": Kind(
        False,
        Blame.FILE,
        "another file of this job has this name; see --layout mirror and --on-duplicate, with --relist",
    ),
    "file-exists": Kind(False, Blame.FILE, "a file of this name was there before; see --existing"),
    "reserved": Kind(False, Blame.FILE, "a file that this run itself reads or writes has this name"),
    "poison": Kind(False, Blame.FILE, "killed every worker that took it; set aside"),
    "damaged": Kind(True, Blame.FILE, "`verify` found the stored file changed or missing"),
    "internal": Kind(False, Blame.FILE, "a defect in the downloader; please report it"),
}

ROW_FAULTS: Final = frozenset({"bad-url", "bad-name", "bad-row", "bad-checksum"})
"""The codes of items that failed because of what a list says about them."""

# 408 request timeout, 425 too early, 429 too many requests; 5xx except the two permanent ones.
_RETRIED_STATUSES: Final = frozenset({408, 425, 429}) | (frozenset(range(500, 600)) - {501, 505})
# With Retry-After: the host wants no request at all for a while. Rate limits answer 403, too.
_PAUSING: Final = frozenset({"http-403", "http-429", "http-503"})


_ADVICE = {401: " (a login is asked for: --auth-file, --netrc or -H; only Basic, not Digest)"}


def failure_kind(code: str) -> Kind:
    """Return the policy for ``code``: a key of ``FAILURES`` or ``http-NNN``.

    Raises KeyError for any other code, so that every code is in the table.
    """
    if code.startswith("http-"):
        status = int(code[5:])
        retry = status in _RETRIED_STATUSES
        meaning = f"the server answered {status}{_ADVICE.get(status, '')}"
        return Kind(retry, Blame.EITHER if retry else Blame.FILE, meaning)
    return FAILURES[code]
