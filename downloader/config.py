"""``Config``: everything that one run is told, frozen, validated once.

Only the command line reads argv and the environment; here are values. A ``Config`` survives a trip
through JSON (``library.download`` sends it to a fresh process).
"""

from __future__ import annotations

import os
import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from downloader.core.redact import redact_url
from downloader.core.retry import RetryPolicy
from downloader.errors import ConfigError
from downloader.forms import source_kind

__all__ = ["Config", "usable_cpus"]

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Sizes are bytes, times are seconds; see the command line for what each option means.

    Raises ConfigError when a value is out of range or two contradict each other.
    """

    source: str
    output: str = ""
    source_type: str = ""
    list_path: str = "list"
    get_path: str = "get"
    store: Literal["files", "null"] = "files"
    layout: Literal["flat", "hashed", "mirror"] = "flat"
    workers: int = 0
    connections: int = 32
    per_host: int = 0
    rate: float = 0.0
    retries: int = 5
    backoff: float = 0.5
    max_retry_after: float = 120.0
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    deadline: float = 600.0
    max_size: int = 0
    limit: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    user_agent: str = ""
    netrc: str = ""
    auth: tuple[str, str] | None = None
    proxies: dict[str, str] = {}
    no_proxy: str = ""
    cacert: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False
    compressed: bool = False
    redirects: int = 5
    allow_private_redirects: bool = False
    restart: bool = False
    retry_failed: bool = False
    dry_run: bool = False
    progress: Literal["auto", "bar", "plain", "none"] = "auto"
    report: str = ""
    failures: str = ""
    preflight: Literal["auto", "probe", "off"] = "auto"
    verbose: int = 0
    quiet: bool = False
    log_json: bool = False
    # Not options: how long a child may be silent before it counts as stuck, and how long a drain
    # lets files in flight go on.
    stall_timeout: float = 30.0
    drain_grace: float = 5.0

    def __post_init__(self) -> None:
        _validate(self)

    @property
    def kind(self) -> str:
        """The kind of the source: told, or seen from its form."""
        return self.source_type or source_kind(self.source)

    @property
    def worker_count(self) -> int:
        """Processes to fork; by default one for each CPU that this process may use."""
        return self.workers or usable_cpus()

    @property
    def slots_per_host(self) -> int:
        """Most connections of one worker to one host."""
        return min(self.per_host or self.connections, self.connections)

    @property
    def retry_policy(self) -> RetryPolicy:
        """The retry policy as a value of its own."""
        return RetryPolicy(self.retries, self.backoff, self.max_retry_after)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Strings that must appear in no message: header values, passwords."""
        found = [value for _, value in self.headers]
        found += [value.split(None, 1)[1] for _, value in self.headers if len(value.split(None, 1)) > 1]
        if self.auth:
            found.append(self.auth[1])
        for url in (self.source, *self.proxies.values()):
            password = _password(url)
            if password:
                found.append(password)
        return tuple(found)

    @property
    def shown_source(self) -> str:
        """The source without secrets."""
        return redact_url(self.source) if "://" in self.source else self.source


def usable_cpus() -> int:
    """CPUs this process may run on: its affinity, not what the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # pragma: no cover - not Linux
        return os.cpu_count() or 1


def _password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:
        return None


def _validate(config: Config) -> None:
    if not config.source:
        raise ConfigError("SOURCE is missing: a file server's URL, a list of URLs (.txt), or -")
    if config.kind == "server":
        _check_server_url(config.source)
    if not config.output and not config.dry_run:
        raise ConfigError("-o DEST is missing (only --dry-run does without)")
    for name, least in (
        ("workers", 0),
        ("connections", 1),
        ("per_host", 0),
        ("rate", 0),
        ("retries", 0),
        ("backoff", 0),
        ("max_retry_after", 0),
        ("max_size", 0),
        ("limit", 0),
        ("redirects", 0),
    ):
        if getattr(config, name) < least:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least {least}")
    for name in ("connect_timeout", "read_timeout", "deadline", "stall_timeout"):
        if not getattr(config, name) > 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be more than 0")
    if config.restart and config.retry_failed:
        raise ConfigError("--restart forgets what failed; it cannot go with --retry-failed")
    if config.insecure and config.cacert:
        raise ConfigError("--insecure ignores --cacert; give one of the two")
    if config.key and not config.cert:
        raise ConfigError("--key needs --cert")
    for name, value in config.headers:
        if not _HEADER_NAME.match(name):
            raise ConfigError(f"-H: {name!r} is not a header name; write -H 'Name: value'")
        if re.search(r"[\r\n\0]", value):
            raise ConfigError(f"-H: the value of {name} has a line break or NUL in it")
    for path, option in ((config.cacert, "cacert"), (config.cert, "cert"), (config.key, "key")):
        if path and not os.path.exists(path):
            raise ConfigError(f"--{option}: {path} does not exist")


def _check_server_url(source: str) -> None:
    try:
        parts = urlsplit(source)
        bad = not parts.hostname or parts.scheme.lower() not in ("http", "https")
        _ = parts.port
    except ValueError:
        bad = True
    if bad:
        raise ConfigError(f"{redact_url(source)}: not a URL of the form http(s)://host[:port][/prefix]")
    if parts.query or parts.fragment:
        raise ConfigError(
            f"{redact_url(source)}: a file server's URL has no query or fragment; "
            "a single file goes into a list: echo URL | downloader - -o DEST"
        )
