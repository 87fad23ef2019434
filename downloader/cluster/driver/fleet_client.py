"""Have another process call Ray, and survive the end of that process; see ``guardian``."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

from downloader.cluster.driver.fleet import DISKS_WITHIN
from downloader.cluster.driver.fleet_process import LOST, Answer, Call
from downloader.cluster.node.limits_actor import SliceHeartbeat
from downloader.cluster.node.task import AttemptResult, SliceTask
from downloader.config.config import Config
from downloader.core.frames import Unpacker, pack
from downloader.errors import BootError, ConfigError, DestinationError, DownloaderError
from downloader.messages import Tally
from downloader.process.isolation import child
from downloader.process.watching import LOOK_EVERY, Watch, end, start

__all__ = ["FleetClient"]

_BEGINS_WITHIN = 90.0  # seconds without progress, of Ray's start
_SHUT_DOWN_WITHIN = 10.0
_CHUNK = 256 << 10
_ERRORS = {kind.__name__: kind for kind in (BootError, ConfigError, DestinationError)}
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Answer).decode


class FleetClient:
    """The nodes of a cluster, as ``Fleet`` has them. Every method may raise DownloaderError.

    ``nodes``: how many have room for a slice. Raises ConfigError, BootError where there is no cluster.
    """

    def __init__(self, config: Config) -> None:
        self._limit = 2 * config.stall_timeout
        self._heartbeats: list[SliceHeartbeat] = []
        self._unpacker = Unpacker()
        self._is_open = False
        self.nodes = 0
        self._temporary = _temporary() if config.ray_address == "local" else ""
        ours, theirs = socket.socketpair()
        ours.settimeout(LOOK_EVERY)
        self._calls = ours
        reader, self._lifeline = os.pipe()
        argv, env = child(
            "downloader.cluster.driver.guardian:main",
            *(str(reader), str(theirs.fileno()), config.ray_address, self._temporary),
            dest=config.local_output,
        )
        # Standard output is for the report, and Ray prints logs of lost nodes there.
        to = None if config.verbose > 1 else subprocess.DEVNULL
        try:
            self._guardian = start(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=2 if to is None else to,
                stderr=to,
                pass_fds=(reader, theirs.fileno()),
                start_new_session=True,
            )
        except BootError:
            ours.close()
            os.close(self._lifeline)
            shutil.rmtree(self._temporary, ignore_errors=True)
            raise
        finally:
            os.close(reader)
            theirs.close()
        try:
            watch = Watch(self._guardian.pid, _BEGINS_WITHIN, by_messages=True)
            self._ask("open", config.stall_timeout, watch=watch)
            self._is_open = True
        except BaseException:
            self._abort()
            raise

    def _ask(
        self, method: str, *given: Any, type: Any = Any, more: float = 0.0, watch: Watch | None = None
    ) -> Any:
        """Return the answer to a call, of ``type``; it may take ``more`` seconds than others."""
        watch = watch or Watch(self._guardian.pid, self._limit + more, by_messages=True)
        left = memoryview(pack(_encode(Call(method, _encode(given)))))
        while True:
            try:
                if left:
                    left = left[self._calls.send(left) :]
                    continue
                data = self._calls.recv(_CHUNK)
            except TimeoutError:
                if watch.stalled():
                    raise self._lost(f"Ray did not answer for {watch.limit:.0f} s") from None
                continue
            except OSError:
                data = b""
            if not data:
                raise self._lost(f"Ray ended its process: {self._abort()}")
            for frame in self._unpacker.feed(data):
                answer = _decode(frame)
                if answer.kind == LOST:
                    raise self._lost(answer.text)
                if answer.kind:
                    raise _ERRORS.get(answer.kind, DownloaderError)(answer.text)
                return msgspec.msgpack.decode(answer.value, type=type) if answer.value else None

    def _lost(self, why: str) -> DownloaderError:
        if not self._is_open:
            return BootError(f"Ray cannot be started: {why}; -vv shows what it says")
        return DownloaderError(
            f"the Ray cluster was lost: {why}; slices that are done stay done, and the same command goes on"
        )

    def _abort(self) -> str:
        """End all at once; return how the process that called Ray had ended."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        self._calls.close()
        try:
            status = self._guardian.wait(_SHUT_DOWN_WITHIN)
        except subprocess.TimeoutExpired:
            self._guardian.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guardian.wait(LOOK_EVERY)
            status = end(self._guardian)
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)  # if the guardian was killed
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-status if status < 0 else status - 128).name}"
        return f"exit code {status}"

    def close(self) -> None:
        """Disconnect; the cluster kills what this job still runs. Ends a local cluster."""
        with contextlib.suppress(OSError):
            self._calls.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guardian.wait(_SHUT_DOWN_WITHIN)
        self._abort()

    def slots(self, workers: int) -> int:
        """Return how many slices of ``workers`` CPUs fit on the nodes that are alive."""
        slots, self.nodes = self._ask("slots", workers, type=tuple[int, int])
        found: int = slots
        return found

    def configure(self, config: Config) -> None:
        """Set the Config that the slices which start from now on have in common."""
        self._ask("configure", config.encode())

    def start(self, task: SliceTask, cpus: int) -> None:
        """Start a slice on any node with ``cpus`` free."""
        self._ask("start", task, cpus)

    def wait(self, seconds: float) -> Iterator[AttemptResult]:
        """Wait until a slice has ended, at most ``seconds``; yield the results of those that have."""
        yield from self._ask("wait", seconds, type=list[AttemptResult], more=seconds)

    def collect(self, rate: float, drain: bool) -> None:
        """Tell all slices the ``rate`` of each and whether to ``drain``; take up what the last call got."""
        self._heartbeats = self._ask("collect", rate, drain, type=list[SliceHeartbeat])

    def live(self, running: set[str]) -> Tally:
        """Return what the slices ``running`` have done so far, by their last heartbeats."""
        newest = {
            heartbeat.name: Tally(*heartbeat.tally)
            for heartbeat in self._heartbeats
            if heartbeat.name in running
        }
        return sum(newest.values(), Tally())

    def disks(self, output: str, plan: str) -> set[str]:
        """Return the marks of the disks that nodes which are alive have under ``output``, for ``plan``.

        A node that does not answer has none.
        """
        return set(self._ask("disks", output, plan, type=list[str], more=DISKS_WITHIN))

    def cancel(self) -> list[str]:
        """Kill all slices that run; return their names."""
        names: list[str] = self._ask("cancel", type=list[str])
        return names


def _temporary() -> str:
    """Make a directory for Ray's files; its own is one that all users share.

    The paths of sockets in it may have 107 bytes. Raises BootError.
    """
    try:
        return tempfile.mkdtemp(prefix="downloader-", dir=os.environ.get("RAY_TMPDIR") or "/tmp")
    except OSError as error:
        raise BootError(
            f"Ray cannot be started: {error.filename}: {error.strerror}; "
            "name another directory with RAY_TMPDIR"
        ) from error
