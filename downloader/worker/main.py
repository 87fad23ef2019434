"""Run the worker process: a forked child that fetches what it is leased."""

from __future__ import annotations

from collections.abc import Callable

import gevent

from downloader.config.config import Config
from downloader.errors import DownloaderError
from downloader.messages import Ready
from downloader.process.channel import ChildLink
from downloader.worker.setup import Setup
from downloader.worker.worker import Worker

__all__ = ["Setup", "run"]


def run(config: Config, setup: Setup, link: ChildLink, ready: Callable[[bool], Ready]) -> None:
    """Run a worker: take leases and report outcomes until told to finish or to drain.

    Raises DestinationError when the destination cannot be opened, ConfigError for unusable certificates.
    """
    # Else each greenlet keeps ten frames of what spawned it: a third of the cost of spawning it.
    gevent.config.track_greenlet_tree = False
    # gevent does not print what is raised again below, and reported in one line.
    hub = type(gevent.get_hub())
    hub.NOT_ERROR = (*hub.NOT_ERROR, DownloaderError)
    worker = Worker(config, setup, link)
    link.send(ready(config.preflight != "off"))
    loops = [worker.listen, worker.heartbeat, worker.timer, worker.connections.run]
    loops += [worker.pipelined.sweep, worker.preempt_slow]
    if config.min_speed:
        loops.append(worker.requests_client.sweep)
    background = [gevent.spawn(loop) for loop in loops]
    for greenlet in background:
        # A defect in one of these must end the process, not leave it idle.
        greenlet.link_exception(lambda dead: worker.finished.set())
    worker.grant_credit()
    worker.finished.wait()
    for defect in (worker.defect, *(greenlet.exception for greenlet in background)):
        if defect is not None:
            raise defect
    gevent.killall(background, block=False)  # the process ends
    # It has the peak of a run that was shorter than the interval of heartbeats.
    link.send(worker.make_heartbeat())
    worker.sink.close()
    worker.close_records()
