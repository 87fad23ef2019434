"""Connect to a Ray cluster and run slices on it: the one module that calls Ray for the driver.

It is used in a process of its own (see ``fleet_process``).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from downloader.cluster.node.limits_actor import LimitsActor, SliceHeartbeat
from downloader.cluster.node.ray_tasks import disk_mark_here, kill_here, node_here, run_here
from downloader.cluster.node.task import AttemptResult, SliceTask
from downloader.config.machine import usable_cpus
from downloader.core.silence import Silence
from downloader.errors import BootError, ConfigError
from downloader.process.watching import stalled_text

__all__ = ["DISKS_WITHIN", "Fleet"]

_CONNECT_WITHIN = 10.0  # seconds
DISKS_WITHIN = 30.0
_FRESH = 3.0  # seconds
_STORE_BYTES = 100 << 20  # of the object store of a local cluster; slices do not go through it


class Fleet:
    """The nodes of the cluster at ``address``: ``auto``, ``local``, or that of its head.

    ``temporary``: the directory of a local cluster. ``limit``: seconds without a heartbeat after which a
    worker of Ray, which has given some, is killed. Raises ConfigError if there is no cluster, BootError.
    """

    def __init__(self, address: str, temporary: str, limit: float) -> None:
        local: dict[str, Any] = {}
        if address == "local":
            _set_apart()
            local = {
                "num_cpus": usable_cpus(),
                "include_dashboard": False,
                "object_store_memory": _STORE_BYTES,
                "_temp_dir": temporary,
            }
        # Unless the user says otherwise: no token in the home directory and no request to the metadata
        # addresses of clouds; no usage statistics.
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if re.fullmatch(r"[^/]+:[0-9]+", address):
            _knock(address)
        import ray

        self._ray = ray
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
        except ConnectionError as error:
            raise _no_cluster(address, _first_line(error)) from None
        except (RuntimeError, ValueError, OSError) as error:
            raise BootError(f"Ray cannot be started: {_first_line(error)}") from error
        if local:
            _check_apart(ray.get_runtime_context().gcs_address)
        self._limit = 2 * limit
        self._watched: dict[str, _Watched] = {}
        self._stuck: dict[str, str] = {}
        self._given_up: list[AttemptResult] = []
        self._actor_silence = Silence(self._limit, 0.0)
        self._config_ref: Any = None
        self._run = ray.remote(run_here)
        self._running: dict[Any, str] = {}
        self._heartbeats: list[SliceHeartbeat] = []
        self._actor_at: tuple[int, str] | None = None
        self._collecting: Any = None
        self._limits_actor = self._new_limits_actor()
        self.nodes = 0

    def _new_limits_actor(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self._ray.get_runtime_context().get_node_id()
        # Beside the driver, so that it is not lost with another node.
        strategy = NodeAffinitySchedulingStrategy(node_id=here, soft=True)
        actor = self._ray.remote(LimitsActor).options(
            num_cpus=0, max_restarts=-1, max_task_retries=0, scheduling_strategy=strategy
        )
        return actor.remote(node_id=node_here)

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

    def configure(self, config: bytes) -> None:
        """Set the Config, encoded, that the slices which start from now on have in common."""
        self._config_ref = self._ray.put(config)

    def start(self, task: SliceTask, cpus: int) -> None:
        """Start a slice on any node with ``cpus`` free."""
        # Without Ray's own retries: it would not tell which deaths were those of a node.
        run = self._run.options(num_cpus=cpus, max_retries=0, name=f"slice {task.name}")
        self._running[run.remote(task, self._config_ref, self._limits_actor)] = task.name
        self._watched.pop(task.name, None)
        self._stuck.pop(task.name, None)

    def wait(self, seconds: float) -> Iterator[AttemptResult]:
        """Wait until a slice has ended, at most ``seconds``; yield the results of those that have."""
        given_up, self._given_up = self._given_up, []
        yield from given_up
        if not self._running:
            time.sleep(0 if given_up else seconds)
            return
        running = list(self._running)
        ended, _ = self._ray.wait(running, num_returns=1, timeout=seconds)
        for ref in ended:
            name = self._running.pop(ref)
            yield self._outcome(ref, name)

    def _outcome(self, ref: Any, name: str) -> AttemptResult:
        errors = self._ray.exceptions
        try:
            outcome: AttemptResult = self._ray.get(ref)
        except errors.TaskCancelledError:
            return AttemptResult(name, "drained")
        except (errors.NodeDiedError, errors.LocalRayletDiedError, errors.ObjectLostError):
            return AttemptResult(name, "lost", "its node was lost")
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            return AttemptResult(name, "crashed", self._stuck.get(name) or _first_line(error))
        except errors.RayTaskError as error:
            cause = error.cause or error
            return AttemptResult(name, "failed", f"{type(cause).__name__}: {_first_line(cause)}")
        except errors.RayError as error:
            return AttemptResult(name, "crashed", f"{type(error).__name__}: {_first_line(error)}")
        return outcome

    def collect(self, rate: float, drain: bool) -> list[SliceHeartbeat]:
        """Set the ``rate`` of each slice, and whether to ``drain``; return the heartbeats of the last call.

        Kills the workers of Ray, that of the limits actor among them, whose heartbeats have stopped.
        """
        now = time.monotonic()
        if self._collecting is not None:
            if not self._ray.wait([self._collecting], timeout=0)[0]:
                if self._actor_silence.look(now, None) and self._actor_at is not None:
                    self._kill(*self._actor_at)  # Ray starts it again
                    self._actor_silence.heard()
                return self._heartbeats
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._heartbeats, self._actor_at = self._ray.get(self._collecting)
                self._look(now)
        self._actor_silence = Silence(self._limit, now)
        self._collecting = self._limits_actor.collect.remote(rate, drain)
        return self._heartbeats

    def _look(self, now: float) -> None:
        """Watch over the attempts that have sent heartbeats to this actor."""
        running = set(self._running.values())
        newest: dict[str, SliceHeartbeat] = {}
        for heartbeat in self._heartbeats:
            if heartbeat.name in running and (
                heartbeat.name not in newest or heartbeat.age < newest[heartbeat.name].age
            ):
                newest[heartbeat.name] = heartbeat
        for name, heartbeat in newest.items():
            if heartbeat.age < _FRESH and heartbeat.pid:
                self._watched[name] = _Watched(heartbeat, Silence(self._limit, now, patient=heartbeat.slow))
        for name in self._watched.keys() & running:
            heartbeat, silence = self._watched[name]
            if not silence.look(now, None):
                continue
            if name not in self._stuck:
                self._stuck[name] = f"its worker on {heartbeat.node} {stalled_text(self._limit)}"
                self._kill(heartbeat.pid, heartbeat.node_id)
                silence.heard()
                continue
            # Nobody there could kill it.
            self._running = {ref: each for ref, each in self._running.items() if each != name}
            self._given_up.append(AttemptResult(name, "crashed", self._stuck[name]))

    def _kill(self, pid: int, node_id: str) -> None:
        """Have process ``pid`` of Ray killed on its node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
        kill = self._ray.remote(kill_here)
        kill.options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote(pid)

    def disks(self, output: str, plan: str) -> set[str]:
        """Return the marks of the disks that nodes which are alive have under ``output``, for ``plan``.

        A node that does not answer has none.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        try:
            nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
            look = self._ray.remote(disk_mark_here)
            asked = [
                look.options(
                    num_cpus=0,
                    max_retries=0,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
                ).remote(output, plan)
                for node in nodes
            ]
            answered, _ = self._ray.wait(asked, num_returns=len(asked), timeout=DISKS_WITHIN)
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


class _Watched(NamedTuple):
    """The last fresh heartbeat of an attempt, and how long it is ago."""

    heartbeat: SliceHeartbeat
    silence: Silence


def _set_apart() -> None:
    """Have a cluster that is started here listen on the loopback address, and answer us only."""
    # What Ray does on macOS and Windows, and the only way to have it: it replaces 127.0.0.1 elsewhere.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)


def _check_apart(address: str) -> None:
    """Raise BootError unless ``address``, that of a cluster started here, is of the loopback interface."""
    host = address.rpartition(":")[0].strip("[]")
    if not ipaddress.ip_address(host).is_loopback:
        raise BootError(
            f"Ray listens on {host}, where others can reach it, and not on the loopback address; use "
            "--engine local, or another version of Ray"
        )


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
