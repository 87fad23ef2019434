"""Run ``--dry-run``: list, count, name the first files, store nothing."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterator
from time import monotonic

import msgspec

from downloader.config.config import Config
from downloader.core.naming import shown
from downloader.errors import BootError, DownloaderError
from downloader.http.client_tls import check_client_certificate
from downloader.messages import DUPLICATE, Batch, Continue, Credit, Ended, Item, Log, Stop
from downloader.process.spawn import Child, fork
from downloader.reporting.progress import Progress
from downloader.storage.name_key import found_key

__all__ = ["Listed", "dry_run"]

_FIRST = 10
_LOG_INTERVAL = 2.0
_BATCHES_AHEAD = 4


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
    check_client_certificate(config)
    progress = Progress(config)
    found = Listed(1, config.shown_source, 0, 0, [])
    logged_at = monotonic()
    for batch in _batches(config, progress):
        found.listed += batch.count
        items = msgspec.msgpack.decode(batch.items, type=list[Item])
        found.bad += sum(1 for item in items if item.fault and item.fault != DUPLICATE)
        found.first += [item.name for item in items[: _FIRST - len(found.first)]]
        if config.progress != "none" and monotonic() - logged_at > _LOG_INTERVAL:
            logged_at = monotonic()
            progress.log("warning", f"{found.listed:,} files listed so far")
    say(msgspec.json.encode(found) if as_json else _as_text(found))
    return found


def _batches(config: Config, progress: Progress) -> Iterator[Batch]:
    child = _start(config)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.link, selectors.EVENT_READ)
            child.link.send(Continue(b"", 0, 0))
            child.link.send(Credit(_BATCHES_AHEAD))
            is_open = True
            while is_open:
                selector.select()
                messages, is_open = child.link.receive()
                for message in messages:
                    if isinstance(message, Batch):
                        yield message
                        child.link.send(Credit(1))
                    elif isinstance(message, Log):
                        progress.log(message.level, message.text)
                    elif isinstance(message, Stop):
                        progress.log("debug", message.detail)
                        error = DownloaderError(message.text)
                        error.exit_code = message.exit_code
                        raise error
                    elif isinstance(message, Ended):
                        return
        raise BootError("the feeder exited unexpectedly")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        child.link.close()


def _start(config: Config) -> Child:
    name_key = found_key(config.journal_root)

    def main(link: object, ready: object) -> None:
        from downloader.feeder import main as feeder

        feeder.run(config, name_key, link, ready)  # type: ignore[arg-type]

    try:
        return fork(main, stdin=config.source == "-")
    except OSError as error:
        raise BootError(f"cannot fork a process: {error.strerror}") from error


def _as_text(found: Listed) -> str:
    lines = [shown(name) for name in found.first]
    if found.listed > len(found.first):
        lines.append(f"… and {found.listed - len(found.first):,} more")
    bad = f", {found.bad:,} of them cannot be fetched" if found.bad else ""
    return "\n".join([*lines, f"{found.listed:,} files{bad}"])
