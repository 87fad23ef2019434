"""Make the heartbeat of a worker from the state of its parts."""

from __future__ import annotations

from downloader.core.scheduler import Scheduler
from downloader.http.pipelined.client import PipelinedClient
from downloader.http.task import FetchTask
from downloader.messages import Heartbeat, Tally
from downloader.worker.connection_control import ConnectionControl

__all__ = ["make_heartbeat"]


def make_heartbeat(
    tally: Tally,
    schedule: Scheduler[FetchTask],
    pipelined: PipelinedClient,
    connections: ConnectionControl,
) -> Heartbeat:
    """Return the heartbeat of a worker whose open batches have ``tally``."""
    census = connections.census
    slow = census.slow_hosts
    hosts = {id(host): host for host in (*slow, *schedule.resting_hosts)}.values()
    waiting = (len(slow) + sum(len(host.queue) + host.held for host in hosts), len(hosts))
    limit = connections.limit
    reached = (connections.peak, limit.now, limit.why)
    stopped = pipelined.origin_depths.stop_reasons()
    return Heartbeat(tally, census.peak, pipelined.depths, stopped, waiting, reached)
