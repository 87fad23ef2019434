"""Make the heartbeat of a worker from the state of its parts."""

from __future__ import annotations

from collections import Counter
from zlib import crc32

from downloader.core.scheduler import Scheduler
from downloader.http.pipelined.client import PipelinedClient
from downloader.http.requests_client import RequestsClient
from downloader.http.task import FetchTask
from downloader.messages import Heartbeat, Tally
from downloader.worker.connection_control import ConnectionControl

__all__ = ["make_heartbeat"]


def make_heartbeat(
    tally: Tally,
    schedule: Scheduler[FetchTask],
    pipelined: PipelinedClient,
    client: RequestsClient,
    connections: ConnectionControl,
) -> Heartbeat:
    """Return the heartbeat of a worker whose open batches have ``tally``."""
    budget = connections.budget
    slow = budget.slow_hosts
    files = Counter(host.key for host in slow)
    silent = [host for host in slow if not host.answered]
    for host in {id(host): host for host in (*silent, *schedule.resting_hosts)}.values():
        files[host.key] += len(host.queue) + host.held
    hosts = [key for key, count in files.items() if count]
    limit = connections.limit
    reached = (connections.peak, limit.now, limit.why)
    stopped = pipelined.origin_depths.stop_reasons()
    return Heartbeat(
        tally,
        budget.peak,
        pipelined.depths,
        stopped,
        files.total(),
        tuple(crc32(key.encode()) for key in hosts),
        reached,
        pipelined.receiving + client.receiving,
    )
