"""``--dry-run``: list, count, name the first files, store nothing."""

from __future__ import annotations

import os
import selectors
import signal
from time import monotonic

import click
import msgspec

from downloader.child import fork
from downloader.config import Config
from downloader.core.naming import shown
from downloader.errors import BootError, DownloaderError
from downloader.model import Batch, Continue, Credit, Ended, Item, Log, Stop
from downloader.progress import Progress

__all__ = ["dry_run"]

_FIRST = 10


def dry_run(config: Config, *, as_json: bool = False) -> int:
    """Read the source of ``config`` to its end (or --limit); print the count and the first names.

    Raises SourceError's kin with the exit code that a real run would have.
    """

    def main(link: object, ready: object) -> None:
        from downloader import feeder

        feeder.run(config, link, ready)  # type: ignore[arg-type]

    child = fork(main, stdin=config.source == "-")
    selector = selectors.DefaultSelector()
    selector.register(child.link, selectors.EVENT_READ)
    progress = Progress(config)
    child.link.send(Continue(b"", 0, 0))
    child.link.send(Credit(4))
    listed, faults = 0, 0
    first: list[str] = []
    noted = monotonic()
    try:
        while True:
            selector.select()
            messages, is_open = child.link.receive()
            for message in messages:
                if isinstance(message, Batch):
                    listed += message.count
                    items = msgspec.msgpack.decode(message.items, type=list[Item])
                    faults += sum(1 for item in items if item.fault)
                    first += [item.name for item in items[: _FIRST - len(first)]]
                    child.link.send(Credit(1))
                elif isinstance(message, Log):
                    progress.log(message.level, message.text)
                elif isinstance(message, Stop):
                    error = DownloaderError(message.text)
                    error.exit_code = message.exit_code
                    raise error
                elif isinstance(message, Ended):
                    _show(config, listed, faults, first, as_json)
                    return 0
            if monotonic() - noted > 2:
                noted = monotonic()
                progress.log("warning", f"{listed:,} files listed so far")
            if not is_open:
                raise BootError("the feeder ended without a word")
    finally:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        child.link.close()


def _show(config: Config, listed: int, faults: int, first: list[str], as_json: bool) -> None:
    if as_json:
        record = {
            "version": 1,
            "source": config.shown_source,
            "listed": listed,
            "bad": faults,
            "first": first,
        }
        click.echo(msgspec.json.encode(record).decode())
        return
    for name in first:
        click.echo(shown(name))
    if listed > len(first):
        click.echo(f"… and {listed - len(first):,} more")
    click.echo(f"{listed:,} files" + (f", {faults:,} of them cannot be fetched" if faults else ""))
