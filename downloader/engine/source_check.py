"""Find a list wrong before a run touches anything: what ends with exit code 2 must have changed nothing."""

from __future__ import annotations

from downloader.config.config import Config
from downloader.engine.source_reader import reading
from downloader.errors import ConfigError
from downloader.messages import Stop
from downloader.process.spawn import fork
from downloader.process.standard_input import take_beginning
from downloader.process.watching import Watch

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

    child = fork(main, plain=True)
    with reading(child, Watch(child.pid, config.stall_timeout)) as messages:
        for message in messages:
            # Whatever else went wrong is told by the feeder, whose task it is.
            if isinstance(message, Stop) and message.exit_code == ConfigError.exit_code:
                raise ConfigError(message.text)
