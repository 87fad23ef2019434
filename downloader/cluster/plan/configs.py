"""Make the Config of a slice from that of its job."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from downloader.cluster.plan.local_home import journal_beside_bucket
from downloader.config.config import Config
from downloader.config.options import PATHS
from downloader.config.slice_context import SliceContext
from downloader.core.bucket_place import is_bucket

__all__ = ["absolute", "changed", "for_slices", "in_slice"]


def for_slices(config: Config, workers: int, per_host: int, shared_since_ns: int) -> Config:
    """Return what the Configs of all slices of a job have in common."""
    return changed(
        config,
        engine="local",
        store="files" if config.store == "local" else config.store,
        workers=workers,
        per_host=per_host,
        limit=0,
        restart=False,
        retry_failed=False,
        report="",
        failures="",
        manifest="",
        hash=config.hash_algorithm,
        slice=SliceContext(shared_since_ns=shared_since_ns, keep_records=config.recording),
        journal=journal_beside_bucket(config) if is_bucket(config.journal) else config.journal,
        journal_endpoint_url="",
        journal_region="",
        progress="none",
        quiet=False,
        verbose=0,
        log_json=False,
    )


def absolute(config: Config) -> Config:
    """Return ``config`` with absolute paths, which all nodes understand."""
    named = {name: getattr(config, name) for name in ("output", "journal", "scratch")}
    # Not those of buckets, nor what begins with a variable, which a node completes.
    relative = {
        name: path for name, path in named.items() if path and not (is_bucket(path) or path.startswith("$"))
    }
    return changed(config, **{name: os.path.abspath(path) for name, path in relative.items()})


def changed(config: Config, **changes: Any) -> Config:
    """Return ``config`` with other values; the files that it names are not read again."""
    assert config.files is not None
    paths = tuple(changes.get(name, getattr(config, name)) for name in ("source", *PATHS))
    files = msgspec.structs.replace(config.files, paths=paths)
    return config.replace(files=files, **changes)


def in_slice(config: Config, **context: Any) -> Config:
    """Return ``config`` with other values of its ``SliceContext``."""
    return changed(config, slice=msgspec.structs.replace(config.slice, **context))
