"""Connect to a Ray cluster and run slices on it: the one module that calls Ray for the driver."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterator
from typing import Any

from downloader.cluster import configs
from downloader.cluster.board import Board, Sign
from downloader.cluster.local_disks import disk_here, on_this_node
from downloader.cluster.task import Outcome, SliceTask, run_slice
from downloader.config.config import Config
from downloader.config.machine import usable_cpus
from downloader.errors import BootError, ConfigError, DestinationError
from downloader.messages import Tally
from downloader.sinks.bucket_store import NODE

__all__ = ["Fleet", "quiet_stdout"]

_CONNECT_WITHIN = 10.0  # seconds
_DISKS_WITHIN = 30.0
_STORE_BYTES = 100 << 20  # of the object store of a local cluster; slices do not go through it


@contextlib.contextmanager
def quiet_stdout(verbose: int) -> Iterator[None]:
    """Keep standard output, which is for the report, from Ray, which prints logs of lost nodes there.

    With -vv they go to standard error, else nowhere.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    to = os.dup(2) if verbose > 1 else os.open(os.devnull, os.O_WRONLY)
    os.dup2(to, 1)
    os.close(to)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


class Fleet:
    """The nodes of the cluster at ``address``: ``auto``, ``local``, or that of its head.

    Raises ConfigError if there is none.
    """

    def __init__(self, address: str) -> None:
        # Unless the user says otherwise: no token in the home directory and no request to the metadata
        # addresses of clouds; no usage statistics.
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if re.fullmatch(r"[^/]+:[0-9]+", address):
            _knock(address)
        import ray

        self._ray = ray
        local: dict[str, Any] = {}
        if address == "local":
            local = {
                "num_cpus": usable_cpus(),
                "include_dashboard": False,
                "object_store_memory": _STORE_BYTES,
            }
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
        except ConnectionError as error:
            raise _no_cluster(address, _first_line(error)) from None
        except (RuntimeError, ValueError, OSError) as error:
            raise BootError(f"Ray cannot be started: {_first_line(error)}") from error
        self._config_ref: Any = None
        self._run = ray.remote(_run_here)
        self._running: dict[Any, str] = {}
        self._signs: list[Sign] = []
        self._collecting: Any = None
        self._board = self._new_board()
        self.nodes = 0

    def _new_board(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self._ray.get_runtime_context().get_node_id()
        # Beside the driver, so that it is not lost with another node.
        strategy = NodeAffinitySchedulingStrategy(node_id=here, soft=True)
        actor = self._ray.remote(Board).options(
            num_cpus=0, max_restarts=-1, max_task_retries=0, scheduling_strategy=strategy
        )
        return actor.remote()

    def close(self) -> None:
        """Disconnect; the cluster kills what this job still runs. Ends a local cluster."""
        self._ray.shutdown()

    def slots(self, workers: int) -> int:
        """Return how many slices of ``workers`` CPUs fit on the nodes that are alive."""
        try:
            nodes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        except self._ray.exceptions.RayError:
            return 1
        fit = [int(cpus) // workers for cpus in nodes]
        self.nodes = sum(1 for slices in fit if slices)
        return sum(fit)

    def configure(self, config: Config) -> None:
        """Set the Config that the slices which start from now on have in common."""
        self._config_ref = self._ray.put(configs.encode(config))

    def start(self, task: SliceTask, cpus: int) -> None:
        """Start a slice on any node with ``cpus`` free."""
        # Without Ray's own retries: it would not tell which deaths were those of a node.
        run = self._run.options(num_cpus=cpus, max_retries=0, name=f"slice {task.name}")
        self._running[run.remote(task, self._config_ref, self._board)] = task.name

    def wait(self, seconds: float) -> Iterator[Outcome]:
        """Wait until a slice has ended, at most ``seconds``; yield the outcomes of those that have."""
        if not self._running:
            import time

            time.sleep(seconds)
            return
        running = list(self._running)
        ended, _ = self._ray.wait(running, num_returns=1, timeout=seconds)
        for ref in ended:
            name = self._running.pop(ref)
            yield self._outcome(ref, name)

    def _outcome(self, ref: Any, name: str) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(ref)
        except errors.TaskCancelledError:
            return Outcome(name, "drained")
        except (errors.NodeDiedError, errors.LocalRayletDiedError, errors.ObjectLostError):
            return Outcome(name, "lost", "its node was lost")
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            return Outcome(name, "crashed", _first_line(error))
        except errors.RayTaskError as error:
            cause = error.cause or error
            return Outcome(name, "failed", f"{type(cause).__name__}: {_first_line(cause)}")
        except errors.RayError as error:
            return Outcome(name, "crashed", f"{type(error).__name__}: {_first_line(error)}")
        return outcome

    def collect(self, rate: float, drain: bool) -> None:
        """Tell all slices the ``rate`` of each and whether to ``drain``; take up what the last call got."""
        if self._collecting is not None:
            if not self._ray.wait([self._collecting], timeout=0)[0]:
                return
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._signs = self._ray.get(self._collecting)
        self._collecting = self._board.collect.remote(rate, drain)

    def live(self, running: set[str]) -> Tally:
        """Return what the slices ``running`` have done so far, by their last signs."""
        newest = {sign.name: Tally(*sign.tally) for sign in self._signs if sign.name in running}
        return sum(newest.values(), Tally())

    def disks(self, output: str, plan: str) -> set[str]:
        """Return the marks of the disks that nodes which are alive have under ``output``, for ``plan``.

        A node that does not answer has none.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        try:
            nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
            look = self._ray.remote(_disk_here)
            asked = [
                look.options(
                    num_cpus=0,
                    max_retries=0,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
                ).remote(output, plan)
                for node in nodes
            ]
            answered, _ = self._ray.wait(asked, num_returns=len(asked), timeout=_DISKS_WITHIN)
        except self._ray.exceptions.RayError:
            return set()
        found: set[str] = set()
        for each in answered:
            with contextlib.suppress(self._ray.exceptions.RayError):
                found.add(self._ray.get(each))
        return found - {""}

    def cancel(self) -> list[str]:
        """Kill all slices that run; return their names."""
        names = list(self._running.values())
        for ref in self._running:
            self._ray.cancel(ref, force=True)
        self._running.clear()
        return names


def _disk_here(output: str, plan: str) -> str:
    """Return the mark of the disk of this node, "" if it has none."""
    try:
        found = disk_here(on_this_node(output), plan)
    except DestinationError:
        return ""
    return found.id if found else ""


def _run_here(task: SliceTask, config: bytes, board: Any) -> Outcome:
    """Run ``task`` on the node of this process: what a task of the cluster calls."""
    import ray

    node = f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:8]}"
    os.environ[NODE] = node
    return run_slice(task, config, board, node)


def _knock(address: str) -> None:
    """Raise ConfigError if nothing listens at ``address``: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, getattr(error, "strerror", "") or str(error)) from None


def _no_cluster(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster answers at --ray-address {address} ({why}); start one with `ray start --head`, or "
        "give --ray-address local"
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
