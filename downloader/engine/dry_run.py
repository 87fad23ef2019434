"""Run ``--dry-run``: list, count, name the first files, store nothing."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import msgspec

from downloader.config.config import Config
from downloader.core.naming import shown
from downloader.engine.source_reader import read_batches
from downloader.http.client_tls import check_certificates
from downloader.messages import DUPLICATE, Batch, Continue, Ended, Item
from downloader.reporting.progress import Progress
from downloader.storage.name_key import found_key

__all__ = ["Listed", "dry_run"]

_FIRST = 10
_LOG_INTERVAL = 2.0


class Listed(msgspec.Struct):
    """The listing of a source; ``bad``: items that cannot be fetched (a bad line, a bad name)."""

    version: int
    source: str
    listed: int
    bad: int
    first: list[str]


def dry_run(config: Config, *, as_json: bool, say: Callable[[str | bytes], None]) -> Listed:
    """Read the source of ``config`` to its end (or --limit); say the count and the first names.

    Raises DownloaderError with the exit code that a real run would have, BootError.
    """
    check_certificates(config)
    progress = Progress(config)
    found = Listed(1, config.shown_source, 0, 0, [])
    logged_at = monotonic()
    for batch in read_batches(config, found_key(config.journal_root), Continue(b"", 0, 0), progress.log):
        if isinstance(batch, Ended):
            break
        if not isinstance(batch, Batch):
            continue
        found.listed += batch.count
        items = msgspec.msgpack.decode(batch.items, type=list[Item])
        found.bad += sum(1 for item in items if item.fault and item.fault != DUPLICATE)
        found.first += [item.name for item in items[: _FIRST - len(found.first)]]
        if config.progress != "none" and monotonic() - logged_at > _LOG_INTERVAL:
            logged_at = monotonic()
            progress.log("warning", f"{found.listed:,} files listed so far")
    if as_json or not config.quiet:  # as of a report
        say(msgspec.json.encode(found) if as_json else _as_text(found))
    return found


def _as_text(found: Listed) -> str:
    lines = [shown(name) for name in found.first]
    if found.listed > len(found.first):
        lines.append(f"… and {found.listed - len(found.first):,} more")
    bad = f", {found.bad:,} of them cannot be fetched" if found.bad else ""
    return "\n".join([*lines, f"{found.listed:,} files{bad}"])
