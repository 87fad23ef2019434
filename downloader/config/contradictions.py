"""Refuse options that contradict each other, or that cannot be what they should."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from downloader.config.options import SUMS, ReportOptions
from downloader.core.bucket_place import bucket_and_prefix, is_bucket
from downloader.core.redact import redact_url
from downloader.errors import ConfigError
from downloader.files.below import descriptor_of, is_closed, is_mount_point, name_below
from downloader.files.directory import HOME, UnsafeFile, open_directory

if TYPE_CHECKING:
    from downloader.config.config import Config

__all__ = [
    "check_contradictions",
    "check_overwrites",
    "check_proxies",
    "check_proxy",
    "check_writable",
    "may_replace",
]


def check_contradictions(config: Config) -> None:
    """Raise ConfigError if two options of ``config`` contradict each other."""
    if config.restart and config.retry_failed:
        raise ConfigError("--restart forgets what failed; it cannot go with --retry-failed")
    if config.relist and (config.restart or config.retry_failed or config.dry_run):
        raise ConfigError(
            "--relist reads the source again; it cannot go with --restart, --retry-failed, --dry-run"
        )
    if config.dns_server and config.resolver == "system":
        raise ConfigError("--dns-server needs --resolver cares: the system has servers of its own")
    if config.insecure and config.cacert:
        raise ConfigError("--insecure ignores --cacert; give one of the two")
    if config.key and not config.cert:
        sharded = config.sink_kind.shard_items(config)
        raise ConfigError("--key needs --cert" + ("; a key of samples is index or name" if sharded else ""))
    if config.log_json and config.progress == "bar":
        raise ConfigError("--progress bar draws, --log-json writes lines; give one of the two")
    _check_written(config)
    if config.fsync and not config.sink_kind.keeps:
        raise ConfigError(f"--fsync is for what is stored; --store {config.store} stores nothing")
    if config.dry_run and (config.report or config.failures or config.retry_failed):
        raise ConfigError("--dry-run fetches nothing, so it has no --report, --failures, --retry-failed")
    _check_manifest(config)
    if config.engine == "ray":
        _check_engine(config)
    else:
        _check_places(config)


def _check_written(config: ReportOptions) -> None:
    for option, path in config.written_files:
        if path == "-":
            raise ConfigError(
                f"{option} -: it is written to a file; /dev/stdout is standard output, ./- a file"
            )


def _check_manifest(config: Config) -> None:
    if not config.manifest:
        return
    form = config.manifest_format
    if not form:
        raise ConfigError(
            f"--manifest {config.manifest}: its name must end in .jsonl, .csv or .parquet, or be {SUMS}"
        )
    if form == SUMS and config.hash not in ("", "sha256"):
        raise ConfigError(f"{SUMS} has SHA-256; leave out --hash {config.hash}, or name another manifest")
    if form == SUMS and config.store not in ("files", "local"):
        raise ConfigError(f"{SUMS} is for files in DEST; --store {config.store} leaves none there")
    if config.dry_run:
        raise ConfigError("--dry-run fetches nothing, so it has no --manifest")


def _check_places(config: Config) -> None:
    """Refuse destinations and journals in buckets, except that of shards."""
    if is_bucket(config.journal) and not config.is_bucket:
        raise ConfigError(
            f"--journal {config.journal}: must be a local directory; a bucket is for --engine ray"
        )
    if not config.is_bucket:
        return
    _check_bucket(config)
    if not config.journal:
        raise ConfigError(
            f"-o {config.output}: the journal and unfinished shards need a local directory: --journal DIR"
        )
    if is_bucket(config.journal):
        raise ConfigError(f"--journal {config.journal}: must be a local directory")


def _check_bucket(config: Config) -> None:
    if not config.sink_kind.shard_items(config):
        raise ConfigError(f"-o {config.output}: a bucket is for shards; add --store tar or parquet")
    if not bucket_and_prefix(config.output)[0]:
        raise ConfigError(f"-o {config.output}: the bucket is missing, as in s3://BUCKET/PREFIX")


def _check_engine(config: Config) -> None:
    if config.store not in ("files", "local", "null", "tar", "parquet"):
        raise ConfigError(
            f"--store {config.store} is not available with --engine ray; use --store files, tar "
            "or parquet, or --engine local"
        )
    if config.is_bucket:
        _check_bucket(config)
        if not config.journal:
            raise ConfigError(
                f"-o {config.output}: the plan of the job needs a place of its own: --journal DIR"
            )
    if is_bucket(config.journal) and config.source_options.get("on_duplicate", "fail") != "fail":
        raise ConfigError(
            f"--journal {config.journal}: --on-duplicate {config.source_options['on_duplicate']} keeps a "
            "table beside the plan, which a bucket cannot; give a directory that all nodes share"
        )
    if config.relist:
        raise ConfigError("--relist is not available with --engine ray; --restart reads the source again")


def check_proxies(proxies: dict[str, str]) -> None:
    """Raise ConfigError for a proxy that is not the URL of one."""
    for url in proxies.values():
        check_proxy("--proxy", url)


def check_proxy(what: str, url: str) -> None:
    """Raise ConfigError if ``url``, which the option or variable ``what`` has, is not that of a proxy."""
    try:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        known = scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        known, scheme = False, ""
    if known:
        return
    if scheme.startswith("socks"):
        raise ConfigError(f"{what}: {redact_url(url)}: SOCKS is not supported; give an HTTP proxy, or none")
    raise ConfigError(f"{what}: {redact_url(url)} is not the URL of an HTTP proxy")


def check_overwrites(
    written: Sequence[tuple[str, str]], read: Sequence[tuple[str, str]], journal_root: str, *, stdin: bool
) -> None:
    """Raise ConfigError if a file that is written is also read, is another one, or one of the tool's own.

    Both are pairs of what the file is and its path. Which file it is counts, not how it is spelled: a path
    may lead to it by links. ``stdin``: standard input is read, too.
    """
    seen: dict[tuple[int, int] | tuple[int, int, str], str] = {}
    by_descriptor = {path for _, path in written if descriptor_of(path) is not None}
    for option, path in written:
        if (own := _own_directory(path, journal_root)) is not None:
            raise ConfigError(f"{option}: {path} is in {own}, which is for this program; name another file")
        # What is there and no file, a terminal, takes both; so does a descriptor, at its position.
        file = _identity(path) if os.path.exists(path) else _place(path)
        if file is not None:
            other = seen.setdefault(file, option)
            if other != option and not {path, dict(written)[other]} <= by_descriptor:
                raise ConfigError(f"{option} and {other} are one file, {path}; give each its own")
    if not seen:
        return
    for what, file in _identities(read, stdin=stdin):
        if file in seen:
            option, path = seen[file], dict(written)[seen[file]]
            raise ConfigError(f"{option}: {path} is a file that this run reads ({what}); name another")


def _identities(read: Sequence[tuple[str, str]], *, stdin: bool) -> Iterator[tuple[str, tuple[int, int]]]:
    for what, path in read:
        if (file := _identity(path)) is not None:
            yield what, file
    if stdin and (file := _identity(0)) is not None:
        yield "the list on standard input", file


def _identity(path: str | int) -> tuple[int, int] | None:
    """Return what tells a regular file from all others, None for anything else."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _place(path: str) -> tuple[int, int, str]:
    """Return what tells the place of a file that is not there yet from all others."""
    above, leaf = os.path.split(os.path.realpath(path))
    while True:
        with contextlib.suppress(OSError):
            found = os.stat(above)
            return found.st_dev, found.st_ino, leaf
        above, segment = os.path.split(above)
        leaf = f"{segment}/{leaf}"


def _own_directory(path: str, journal_root: str) -> str | None:
    """Return the directory of the tool's own files that ``path`` is in, None if it is in none."""
    above: str = os.path.dirname(os.path.realpath(path))
    home = "" if is_bucket(journal_root) else os.path.join(journal_root, HOME)
    while (parent := os.path.dirname(above)) != above:
        is_home = os.path.exists(home) and os.path.exists(above) and os.path.samefile(above, home)
        if os.path.basename(above) == HOME or is_home:
            return above
        above = parent
    return None


def check_writable(option: str, path: str, output: str) -> None:
    """Raise ConfigError if a report cannot be written, so that this is found before the job."""
    if (descriptor := descriptor_of(path, output)) is not None:
        _check_descriptor(option, path, descriptor)
        return
    _check_kind(option, path)
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or path.endswith("/"):
        raise ConfigError(f"{option}: {path} is a directory")
    if output and parent == os.path.abspath(output) and not os.path.exists(parent):
        return  # the run creates it
    if not os.path.isdir(parent):
        raise ConfigError(f"{option}: the directory {parent} does not exist")
    target = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(target):
        raise ConfigError(f"{option}: {path} is a link into {target}, which is not there")
    _check_below(option, path, output)
    if os.path.isfile(path) and is_mount_point(path):
        raise ConfigError(
            f"{option}: {path} is mounted by itself, so no other file can replace it; mount its directory "
            "instead, or name another file"
        )
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise ConfigError(f"{option}: {path}: Permission denied")
    if not os.path.exists(path) or os.path.isfile(path):
        _check_replaceable(option, path, target)


def _check_kind(option: str, path: str) -> None:
    """Refuse a name that no file can have, and what is no file and takes nothing."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISSOCK(mode):
            raise ConfigError(f"{option}: {path} is a socket; name a file or a pipe")
        if stat.S_ISCHR(mode):  # /dev/tty, say, without a terminal
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror}") from None


def _check_descriptor(option: str, path: str, descriptor: int) -> None:
    if is_closed(descriptor):
        raise ConfigError(f"{option}: {path}: no such descriptor is open")
    try:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except (OSError, OverflowError):
        raise ConfigError(f"{option}: {path}: no such descriptor is open") from None
    if mode == os.O_RDONLY:
        raise ConfigError(f"{option}: {path} is not open for writing")


def _check_replaceable(option: str, path: str, directory: str) -> None:
    """Refuse a file in whose directory no other can be made: it would be written there, then renamed."""
    try:
        with open_directory(directory) as opened:
            os.close(opened.unnamed())
            above = os.fstat(opened.fd)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return  # there may be room at the end
        raise ConfigError(
            f"{option}: {path}: no file can be made in {directory}: {error.strerror}; name one elsewhere"
        ) from None
    if os.path.exists(path) and not may_replace(above, os.stat(path).st_uid, os.geteuid()):
        raise ConfigError(
            f"{option}: {path}: only its owner can replace it in {directory}; name another file"
        )


def may_replace(directory: os.stat_result, owner: int, user: int) -> bool:
    """Return whether ``user`` may replace a file of ``owner`` in ``directory``, where it may make files."""
    return not directory.st_mode & stat.S_ISVTX or user in (0, owner, directory.st_uid)


def _check_below(option: str, path: str, output: str) -> None:
    """Refuse what is no file below DEST, which others may have prepared; a link is not followed there."""
    name = name_below(path, output)
    if not name:
        return
    try:
        with open_directory(output) as directory:
            (directory / name).check(write=False)
    except UnsafeFile as error:
        raise ConfigError(f"{option}: {error}") from None
