"""Run the worker process: a forked child that fetches what it is leased."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import gevent

from downloader.config.config import Config
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
    gevent.get_hub().handle_error = _raise_in_main
    worker = Worker(config, setup, link)
    link.send(ready(config.preflight != "off"))
    loops = [worker.listen, worker.heartbeat, worker.timer, worker.connections.run]
    loops += [worker.pipelined.sweep, worker.preempt_slow]
    if config.min_speed:
        loops.append(worker.requests_client.sweep)
    background = [gevent.spawn(loop) for loop in loops]
    worker.grant_credit()
    worker.finished.wait()
    if worker.defect is None:
        worker.pipelined.await_surplus()
    if worker.defect is not None:
        raise worker.defect
    gevent.killall(background, block=False)  # the process ends
    # It has the peak of a run that was shorter than the interval of heartbeats.
    link.send(worker.make_heartbeat())
    worker.sink.close()
    worker.close_records()


def _raise_in_main(
    context: object, kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> None:
    """End the process with an error that no greenlet or callback has caught; replaces gevent's handler.

    gevent would print it and go on, and what waits for that greenlet, for ever: after a defect, or where
    gevent itself finds no memory.
    """
    hub = gevent.get_hub()
    if not issubclass(kind, hub.NOT_ERROR):
        hub.handle_system_error(kind, value, trace)
