"""Find a list wrong before a run touches anything: what ends with exit code 2 must have changed nothing."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal

from downloader.config.config import Config
from downloader.errors import BootError, ConfigError
from downloader.messages import Stop
from downloader.process.spawn import fork
from downloader.process.standard_input import take_beginning

__all__ = ["check_source"]


def check_source(config: Config, *, begun: bool) -> None:
    """Raise ConfigError if the beginning of the list of ``config`` cannot be one: columns, encoding, files.

    It is read as the feeder will read it, up to its first batch, in a process of its own: this one has no
    gevent. Of standard input it is the first line, which is kept for the feeder. ``begun``: the job goes
    on, and most faults end it with another code, as a listing that fails does.
    """
    if not config.source_kind.editable:
        return
    if config.reads_stdin:
        take_beginning()

    def main(link: object, ready: object) -> None:
        from downloader.feeder.main import check

        check(config, begun=begun)

    try:
        child = fork(main, plain=True)
    except OSError as error:
        raise BootError(f"cannot fork a process: {error.strerror}") from error
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.link, selectors.EVENT_READ)
            is_open = True
            while is_open:
                selector.select()
                messages, is_open = child.link.receive()
                for message in messages:
                    # Whatever else went wrong is told by the feeder, whose task it is.
                    if isinstance(message, Stop) and message.exit_code == ConfigError.exit_code:
                        raise ConfigError(message.text)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        child.link.close()
