"""``Config``: everything that one run is told, frozen, validated once.

Only the command line reads argv and the environment; here are values. A ``Config`` survives a trip
through JSON (``library.download`` sends it to a fresh process).
"""

from __future__ import annotations

import contextlib
import math
import netrc
import os
import re
import stat
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from downloader.core.limits import DEEPEST_PIPELINE, LONGEST_TIME, MOST_CONNECTIONS, MOST_WORKERS
from downloader.core.redact import redact_url
from downloader.core.retry import RetryPolicy
from downloader.errors import ConfigError
from downloader.forms import check_form, check_paths, source_kind

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
    pipeline: int = 0  # 0: adaptive
    lane: Literal["auto", "requests"] = "auto"
    retries: int = 5
    backoff: float = 0.5
    max_retry_after: float = 120.0
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    deadline: float = 600.0
    min_speed: int = 0
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
    fsync: bool = False
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
    drain_grace: float = 3.0

    def __post_init__(self) -> None:
        _validate(self)

    def __repr__(self) -> str:
        """Without what may be secret."""
        return f"Config(source={self.shown_source!r}, output={self.output!r}, …)"

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
            found += _credentials(url)
        if self.netrc:
            with contextlib.suppress(OSError, netrc.NetrcParseError):
                found += [entry[2] for entry in netrc.netrc(self.netrc).hosts.values() if entry[2]]
        return tuple(found)

    @property
    def shown_source(self) -> str:
        """The source without secrets, as text that can be encoded."""
        source = redact_url(self.source) if "://" in self.source else self.source
        return source.encode("utf-8", "backslashreplace").decode()


def usable_cpus() -> int:
    """CPUs this process may run on: its affinity, not what the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # pragma: no cover - not Linux
        return os.cpu_count() or 1


def _credentials(url: str) -> list[str]:
    """The password in ``url``, or a user name that stands alone, which may be a token."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    secret = parts.password or parts.username or ""
    return [secret, unquote(secret)] if secret else []


_RANGES = {
    "workers": (0, MOST_WORKERS),
    "connections": (1, MOST_CONNECTIONS),
    "per_host": (0, MOST_CONNECTIONS),
    "pipeline": (0, DEEPEST_PIPELINE),
    "rate": (0, math.inf),
    "retries": (0, math.inf),
    "min_speed": (0, math.inf),
    "max_size": (0, math.inf),
    "limit": (0, math.inf),
    "redirects": (0, math.inf),
    "backoff": (0, LONGEST_TIME),
    "max_retry_after": (0, LONGEST_TIME),
}
_TIMES = ("connect_timeout", "read_timeout", "deadline", "stall_timeout")


def _validate(config: Config) -> None:
    _check_source(config)
    if not config.output and not config.dry_run:
        raise ConfigError("-o DEST is missing (only --dry-run does without)")
    for name, (least, most) in _RANGES.items():
        if not least <= getattr(config, name) <= most:
            wanted = f"at least {least}" if most == math.inf else f"{least} to {most:,.0f}"
            raise ConfigError(f"{_option(name)} must be {wanted}")
    for name in _TIMES:
        if not 0 < getattr(config, name) <= LONGEST_TIME:
            raise ConfigError(f"{_option(name)} must be more than 0, and at most a year")
    _check_contradictions(config)
    for name, value in config.headers:
        if not _HEADER_NAME.match(name):
            raise ConfigError("-H: what stands before the colon is not a header's name; -H 'Name: value'")
        if re.search(r"[\r\n\0]", value):
            raise ConfigError(f"-H: the value of {name} has a line break or NUL in it")
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ConfigError(f"-H: the value of {name} is not Latin-1, as headers are") from None
    if re.search(r"[^\x20-\x7e]", config.user_agent):
        raise ConfigError("--user-agent is not printable ASCII")
    _check_proxies(config.proxies)
    for option, path in (("--cacert", config.cacert), ("--cert", config.cert), ("--key", config.key)):
        if path:
            _check_pem(option, path)
    if config.netrc:
        _check_netrc(config.netrc)
    for option, path in (("--report", config.report), ("--failures", config.failures)):
        if path:
            _check_writable(option, path, config.output)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_contradictions(config: Config) -> None:
    if config.restart and config.retry_failed:
        raise ConfigError("--restart forgets what failed; it cannot go with --retry-failed")
    if config.insecure and config.cacert:
        raise ConfigError("--insecure ignores --cacert; give one of the two")
    if config.key and not config.cert:
        raise ConfigError("--key needs --cert")
    if config.log_json and config.progress == "bar":
        raise ConfigError("--progress bar draws, --log-json writes lines; give one of the two")
    if config.report and config.report == config.failures:
        raise ConfigError("--report and --failures are one file; give two")
    if config.fsync and config.store == "null":
        raise ConfigError("--fsync is for what is stored; --store null stores nothing")
    if config.dry_run and (config.report or config.failures or config.retry_failed):
        raise ConfigError("--dry-run fetches nothing, so it has no --report, --failures, --retry-failed")


def _check_source(config: Config) -> None:
    if not config.source:
        raise ConfigError("SOURCE is missing: a file server's URL, a list of URLs (.txt), or -")
    if "\0" in config.source + config.output:
        raise ConfigError("SOURCE or DEST has a NUL in it")
    check_form(config.source)
    if config.kind == "server":
        _check_server_url(config.source)
        check_paths(config.list_path, config.get_path)
    elif config.kind == "urls" and config.source != "-":
        _check_list(config.source)


def _check_list(path: str) -> None:
    named = path.encode("utf-8", "backslashreplace").decode()
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ConfigError(f"{named}: {error.strerror}") from None
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{named} is a directory, not a list of URLs")
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{named} is not a regular file, which is read again on resume; use - < {named}")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"{named}: Permission denied")


def _check_proxies(proxies: dict[str, str]) -> None:
    for url in proxies.values():
        try:
            parts = urlsplit(url)
            known = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            known = False
        if not known:
            raise ConfigError(f"--proxy: {redact_url(url)} is not the URL of an HTTP proxy")


def _check_pem(option: str, path: str) -> None:
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{option}: {path}: {reason}") from None
    if b"-----BEGIN " not in content:
        raise ConfigError(f"{option}: {path} is not in PEM format (-----BEGIN …)")


def _check_netrc(path: str) -> None:
    try:
        netrc.netrc(path)
    except netrc.NetrcParseError as error:
        # Its text has the word that it did not expect: that may be the password.
        raise ConfigError(f"--netrc: {path}, line {error.lineno}: not in the format of netrc") from None
    except (OSError, ValueError):
        raise ConfigError(f"--netrc: {path} cannot be read") from None


def _check_writable(option: str, path: str, output: str) -> None:
    """A report that cannot be written is found before the job, not after it."""
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise ConfigError(f"{option}: {path} is a directory")
    if output and parent == os.path.abspath(output) and not os.path.exists(parent):
        return  # the run makes it
    if not os.path.isdir(parent):
        raise ConfigError(f"{option}: the directory {parent} does not exist")
    if not os.access(path if os.path.exists(path) else parent, os.W_OK):
        raise ConfigError(f"{option}: {path}: Permission denied")


def _check_server_url(source: str) -> None:
    try:
        parts = urlsplit(source)
        bad = not parts.hostname or parts.scheme.lower() not in ("http", "https")
        _ = parts.port
    except ValueError:
        bad = True
    if bad:
        raise ConfigError(f"{redact_url(source)}: not a URL of the form http(s)://host[:port][/prefix]")
    if "?" in source or "#" in source:
        raise ConfigError(
            f"{redact_url(source)}: a file server's URL has no query or fragment; "
            "a single file goes into a list: echo URL | downloader - -o DEST"
        )
