"""Refuse options that contradict each other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from downloader.errors import ConfigError

if TYPE_CHECKING:
    from downloader.config.config import Config

__all__ = ["check_contradictions", "manifest_format"]

_SUFFIXES: Final = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_SUMS: Final = "SHA256SUMS"


def manifest_format(path: str) -> str:
    """Return the format of the manifest ``path``, "" if its name is that of none."""
    leaf = os.path.basename(path)
    return _SUMS if leaf == _SUMS else _SUFFIXES.get(os.path.splitext(leaf)[1], "")


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
        raise ConfigError("--key needs --cert")
    if config.log_json and config.progress == "bar":
        raise ConfigError("--progress bar draws, --log-json writes lines; give one of the two")
    given = [path for path in (config.report, config.failures, config.manifest) if path]
    if len(set(given)) < len(given):
        raise ConfigError("--report, --failures and --manifest are one file; give each its own")
    if config.fsync and not config.sink_kind.keeps:
        raise ConfigError(f"--fsync is for what is stored; --store {config.store} stores nothing")
    if config.dry_run and (config.report or config.failures or config.retry_failed):
        raise ConfigError("--dry-run fetches nothing, so it has no --report, --failures, --retry-failed")
    _check_manifest(config)


def _check_manifest(config: Config) -> None:
    if not config.manifest:
        return
    form = manifest_format(config.manifest)
    if not form:
        raise ConfigError(
            f"--manifest {config.manifest}: its name must end in .jsonl, .csv or .parquet, or be {_SUMS}"
        )
    if form == _SUMS and config.hash not in ("", "sha256"):
        raise ConfigError(f"{_SUMS} has SHA-256; leave out --hash {config.hash}, or name another manifest")
    if form == _SUMS and config.store != "files":
        raise ConfigError(f"{_SUMS} is for files in DEST; --store {config.store} leaves none there")
    if config.dry_run:
        raise ConfigError("--dry-run fetches nothing, so it has no --manifest")
