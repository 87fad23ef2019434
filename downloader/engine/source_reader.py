"""Read a source without fetching its files: for a dry run, and for the plan of a job over many machines."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterator

from downloader.config.config import Config
from downloader.errors import BootError, DownloaderError, SourceError
from downloader.messages import Batch, Continue, Credit, Ended, FromChild, Log, Stop, Types
from downloader.process.spawn import Child, fork
from downloader.process.watching import ENDS_WITHIN, LOOK_EVERY, Watch, reap, stalled_text

__all__ = ["FeederLost", "read_batches", "reading"]

_BATCHES_AHEAD = 4


class FeederLost(BootError):
    """The feeder died or stopped; another one may go on where it was."""


def read_batches(
    config: Config,
    name_key: bytes,
    start: Continue,
    log: Callable[[str, str], None],
    beat: Callable[[], None] = lambda: None,
) -> Iterator[Batch | Types | Ended]:
    """Fork a feeder; yield the batches of the source from ``start`` on, then an Ended.

    Before the first batch, there may be the types of its columns. ``beat`` is called twice a second or more
    often while the feeder is waited for.

    Raises SourceError if the source breaks off, DownloaderError with the exit code that a run would have,
    BootError; FeederLost where the feeder ends early, or makes no progress.
    """
    child = _start(config, name_key)
    with reading(child, Watch(child.pid, config.stall_timeout, speaks=True), beat) as messages:
        child.link.send(start)
        child.link.send(Credit(_BATCHES_AHEAD))
        for message in messages:
            if isinstance(message, Types):
                yield message
            elif isinstance(message, Batch):
                yield message
                child.link.send(Credit(1))
            elif isinstance(message, Log):
                log(message.level, message.text)
            elif isinstance(message, Stop):
                log("debug", message.detail)
                error = (SourceError if message.source_broke else DownloaderError)(message.text)
                error.exit_code = message.exit_code
                raise error
            elif isinstance(message, Ended):
                yield message
                return
    raise FeederLost("the feeder exited unexpectedly")


@contextlib.contextmanager
def reading(
    child: Child, watch: Watch, beat: Callable[[], None] = lambda: None
) -> Iterator[Iterator[FromChild]]:
    """Yield an iterator of what ``child`` sends until it ends; then kill and reap it.

    The iterator calls ``beat`` twice a second or more often, and raises FeederLost where the child makes no
    progress.
    """
    try:
        yield _messages(child, watch, beat)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        reap(child.pid, ENDS_WITHIN)  # one that waits for its disk dies when that answers
        child.link.close()


def _messages(child: Child, watch: Watch, beat: Callable[[], None]) -> Iterator[FromChild]:
    with selectors.DefaultSelector() as selector:
        selector.register(child.link, selectors.EVENT_READ)
        is_open = True
        while is_open:
            beat()
            if selector.select(LOOK_EVERY):
                messages, is_open = child.link.receive()
                watch.heard()
                yield from messages
            elif watch.stalled():
                raise FeederLost(f"the feeder {stalled_text(watch.limit)}; run the same command again")


def _start(config: Config, name_key: bytes) -> Child:
    def main(link: object, ready: object) -> None:
        from downloader.feeder import main as feeder

        feeder.run(config, name_key, link, ready)  # type: ignore[arg-type]

    return fork(main, stdin=config.reads_stdin, plain=config.reads_files)
