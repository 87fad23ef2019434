"""Read a source without fetching its files: for a dry run, and for the plan of a job over many machines."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterator

from downloader.config.config import Config
from downloader.errors import BootError, DownloaderError, SourceError
from downloader.messages import Batch, Continue, Credit, Ended, Log, Stop, Types
from downloader.process.spawn import Child, fork

__all__ = ["read_batches"]

_BATCHES_AHEAD = 4


def read_batches(
    config: Config, name_key: bytes, start: Continue, log: Callable[[str, str], None]
) -> Iterator[Batch | Types | Ended]:
    """Fork a feeder; yield the batches of the source from ``start`` on, then an Ended.

    Before the first batch, there may be the types of its columns.

    Raises SourceError if the source breaks off, DownloaderError with the exit code that a run would have,
    BootError.
    """
    child = _start(config, name_key)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.link, selectors.EVENT_READ)
            child.link.send(start)
            child.link.send(Credit(_BATCHES_AHEAD))
            is_open = True
            while is_open:
                selector.select()
                messages, is_open = child.link.receive()
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
        raise BootError("the feeder exited unexpectedly")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        child.link.close()


def _start(config: Config, name_key: bytes) -> Child:
    def main(link: object, ready: object) -> None:
        from downloader.feeder import main as feeder

        feeder.run(config, name_key, link, ready)  # type: ignore[arg-type]

    try:
        return fork(main, stdin=config.reads_stdin)
    except OSError as error:
        raise BootError(f"cannot fork a process: {error.strerror}") from error
