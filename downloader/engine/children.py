"""What the children of a run do: the main functions of the feeder and of a worker."""

from __future__ import annotations

from downloader.config.config import Config
from downloader.core.reached_hosts import ReachedHosts
from downloader.core.worker_counts import WorkerCounts
from downloader.feeder.duplicates import follow_journal
from downloader.process.spawn import ChildMain
from downloader.storage.destination import Destination

__all__ = ["feeder_main", "worker_main"]


def feeder_main(config: Config, destination: Destination) -> ChildMain:
    """Return the main function of a feeder. Raises DestinationError, JournalError."""
    follow_journal(config, destination.journal)
    name_key, rules = destination.name_key, destination.rules

    def main(link: object, ready: object) -> None:
        from downloader.feeder import main as feeder

        feeder.run(config, name_key, link, ready, rules)  # type: ignore[arg-type]

    return main


def worker_main(
    config: Config, destination: Destination, number: int, reached: ReachedHosts, counts: WorkerCounts
) -> ChildMain:
    """Return the main function of worker ``number``.

    ``reached`` and ``counts`` are in memory that workers share.

    Raises DestinationError.
    """
    rules = destination.rules

    def main(link: object, ready: object) -> None:
        from downloader.worker import main as worker

        setup = worker.Setup(
            number,
            destination.ledgers.path(number),
            rules,
            reached,
            counts,
            destination.reserved,
            destination.spool(number),
        )
        worker.run(config, setup, link, ready)  # type: ignore[arg-type]

    return main
