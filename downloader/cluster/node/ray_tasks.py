"""Define what Ray calls on a node: one function for each kind of task that the driver starts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import Any

from downloader.cluster.node.local_disk import disk_here, on_this_node
from downloader.cluster.node.task import AttemptResult, SliceTask, run_slice
from downloader.errors import DestinationError
from downloader.sinks.bucket_store import NODE

__all__ = ["disk_mark_here", "kill_here", "node_here", "run_here"]


def run_here(task: SliceTask, config: bytes, limits_actor: Any) -> AttemptResult:
    """Run ``task`` on the node of this process: what a task of the cluster calls."""
    node_id = node_here()
    node = f"{socket.gethostname()}/{node_id[:8]}"
    os.environ[NODE] = node
    return run_slice(task, config, limits_actor, node, node_id)


def kill_here(pid: int) -> None:
    """Kill process ``pid`` of this node if it is one of Ray's workers: what a task of the cluster calls."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        if file.read(5) == b"ray::":
            os.kill(pid, signal.SIGKILL)


def disk_mark_here(output: str, plan: str) -> str:
    """Return the mark of the disk of this node, "" if it has none."""
    try:
        found = disk_here(on_this_node(output), plan)
    except DestinationError:
        return ""
    return found.id if found else ""


def node_here() -> str:
    """Return Ray's name of the node of this process."""
    import ray

    found: str = ray.get_runtime_context().get_node_id()
    return found
