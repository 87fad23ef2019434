"""Spawn, watch and reap the child processes of a run.

A child is stuck when it is silent for too long. Silence is counted only while this process itself runs:
children must not be killed for a SIGSTOP and SIGCONT, or a suspend to RAM. A child that waits for its disk
has ten times as long: to write what is in the caches can take minutes.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic

from downloader.config.machine import why_killed
from downloader.core.silence import FOR_DISK, WAITS_FOR_DISK
from downloader.messages import Message, Receiving, Tally
from downloader.process.channel import Link
from downloader.process.spawn import ChildMain, fork
from downloader.process.watching import reap, vital_signs

__all__ = ["FEEDER", "Process", "ProcessPool", "describe"]

FEEDER = -1
"""The feeder's number; workers have 0, 1, 2 … and a replacement has a new number."""

_MAX_ITERATION = 1.0
_DIES_WITHIN = 2.0
_LESS = "give more memory, or fewer --workers or --connections"


@dataclass
class Process:
    """One child.

    ``tries``: how many children in its place, in a row, exited before they were ready. ``silence``: seconds
    since its last message. ``live``: what it has counted and not reported yet. ``receiving``, ``waiting``,
    ``hosts``: see ``messages.Heartbeat``. ``waits``: whether the selector watches for room to send to it.
    ``killed``: it was sent SIGKILL, of which it does not die while it waits for a disk that hangs.
    """

    number: int
    pid: int
    link: Link
    tries: int = 0
    ready: bool = False
    silence: float = 0.0
    live: Tally = field(default_factory=Tally)
    receiving: Receiving = field(default_factory=Receiving)
    waiting: int = 0
    hosts: tuple[int, ...] = ()
    waits: bool = False
    killed: bool = False

    def reported(self, outcome: Tally) -> None:
        """Subtract what is reported from ``live`` and ``receiving``, as of the last heartbeat.

        What was finished since then is in neither, so too little may be left until the next one.
        """
        before, now = self.receiving, max(self.receiving.bytes - max(outcome.bytes - self.live.bytes, 0), 0)
        self.live = self.live.less(outcome)
        if now < before.bytes:
            # Some of the files have arrived; which is not known.
            self.receiving = Receiving(now)


class ProcessPool:
    """The children that are not reaped yet, registered with ``selector`` under their numbers."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._all: dict[int, Process] = {}
        self._last_check = monotonic()
        self.cpu_seconds = {"feeder": 0.0, "workers": 0.0}
        self.worker_rss = 0  # KiB

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Process]:
        return iter(list(self._all.values()))

    def get(self, number: int) -> Process | None:
        """Return child ``number``, or None."""
        return self._all.get(number)

    def spawn(
        self,
        number: int,
        main: ChildMain,
        *,
        keep: tuple[int, ...],
        tries: int,
        stdin: bool = False,
        plain: bool = False,
    ) -> None:
        """Fork a child that runs ``main``; see ``spawn.fork``. Raises BootError."""
        child = fork(main, keep=keep, stdin=stdin, plain=plain)
        self._all[number] = Process(number, child.pid, child.link, tries)
        self._selector.register(child.link, selectors.EVENT_READ, number)

    def send(self, number: int, message: Message) -> None:
        """Send ``message`` to child ``number``. That it has exited is noticed when receiving."""
        self._all[number].link.send(message)

    def send_all(self, message: Message, *, but: tuple[int, ...] = ()) -> None:
        """Send ``message`` to all children except ``but``."""
        for number, process in self._all.items():
            if number not in but:
                process.link.send(message)

    def listen_for_room(self) -> None:
        """Have the selector watch for room to send in the links that have something to send."""
        for number, process in self._all.items():
            waits = bool(process.link.outgoing)
            if waits != process.waits:
                process.waits = waits
                mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if waits else 0)
                self._selector.modify(process.link, mask, number)

    def stuck(self, limit: float) -> list[Process]:
        """Return the children silent for longer than ``limit`` seconds; call it once in each iteration."""
        now = monotonic()
        elapsed, self._last_check = min(now - self._last_check, _MAX_ITERATION), now
        found = []
        for process in self._all.values():
            # Its files are not to blame, and it cannot be killed before the disk answers.
            signs = vital_signs(process.pid) if limit / 2 < process.silence and not process.killed else None
            waits = signs is not None and signs.state == WAITS_FOR_DISK
            process.silence += elapsed / FOR_DISK if waits else elapsed
            if process.silence > limit:
                found.append(process)
        return found

    def kill(self, process: Process) -> None:
        """Send SIGKILL; the exit of the child is noticed when its link closes."""
        process.silence = 0.0
        process.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)

    def live(self) -> Tally:
        """Return what the processes have settled and not reported yet."""
        return sum((process.live for process in self), Tally())

    def receiving(self) -> Receiving:
        """Return what has arrived of files that are not finished."""
        return sum((process.receiving for process in self), Receiving())

    def waiting(self) -> tuple[int, int]:
        """Return how many files wait in the processes, and for how many hosts."""
        hosts = {host for process in self for host in process.hosts}
        return sum(process.waiting for process in self), len(hosts)

    def reap(self, process: Process) -> int:
        """Close the link of a child that is exiting, wait for it, and return its wait status."""
        del self._all[process.number]
        self._selector.unregister(process.link)
        process.link.close()
        # Its end of the link is closed, so it is exiting; kill it if not, rather than wait forever.
        found = None if process.killed else reap(process.pid, 2.0)
        if found is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            found = reap(process.pid, _DIES_WITHIN)
        if found is None:
            return int(signal.SIGKILL)  # it waits for a disk, and dies when that answers
        status, usage = found
        role = "feeder" if process.number == FEEDER else "workers"
        self.cpu_seconds[role] += usage.ru_utime + usage.ru_stime
        if process.number != FEEDER:
            self.worker_rss = max(self.worker_rss, usage.ru_maxrss)
        return status


def describe(status: int) -> str:
    """Describe a wait status in words, with what may be the cause."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}{why_killed(-code, _LESS)}"
