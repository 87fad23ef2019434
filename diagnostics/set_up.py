"""Watch the set-up of the process under check, and ask it where it is when it takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from diagnostics.agent.https_agent.clocks import clock
from diagnostics.agent.https_agent.life import SIGNAL
from diagnostics.agent.https_agent.whereabouts import DUMP_SIGNAL
from diagnostics.errors import ProbeError
from diagnostics.model import Question
from diagnostics.processes import Processes, send
from diagnostics.stuck import Look, dumped, patching, place, standstill

__all__ = ["SetUp"]

_AGENT = str(Path(__file__).parent / "agent")
_INTERVAL = 2.5  # seconds between two looks
_REACTS = 2.0  # seconds within which a process says where it is
_POLL = 0.01


class SetUp:
    """The set-up of a style or an application, or of the processes of a command."""

    def __init__(
        self,
        question: Question,
        pid: int,
        processes: Processes,
        outbox: Path,
        read: Callable[[str], bytes],
    ) -> None:
        """Watch the process ``pid``; ``read`` returns the content of a file of the outbox."""
        self._question = question
        self._pid = pid
        self._processes = processes
        self._outbox = outbox
        self._read = read
        self._began = clock()
        self._next = self._began + question.patience
        self._looks: list[Look] = []
        self._asked = self._over = False
        self._giving_up: tuple[str, int, float] | None = None

    def note(self, report: Mapping[str, Any]) -> None:
        """Update the state with a report of the agent; raise ProbeError where the set-up stands still."""
        if report["kind"] in ("ready", "measuring"):
            self._over = True
        elif report["kind"] == "where" and not self._over:
            self._look(report)

    def check(self, now: float) -> None:
        """Ask what an import does that takes long; raise ProbeError where it stands still."""
        if self._over or now < self._next:
            return
        if self._asked:
            self._look(None)  # it has not answered
        self._next = now + _INTERVAL
        self._asked = send(self._pid, SIGNAL)

    @property
    def place(self) -> str:
        """Return where its main greenlet was last, for a message; "" where that is not known."""
        told = self._looks[-1].report if self._looks else None
        at = place(told) if told else ""
        return f"; its main greenlet is at {at}" if at else ""

    def _look(self, report: Mapping[str, Any] | None) -> None:
        self._asked = False
        self._looks.append(Look(clock(), report, self._processes.used()))
        does = standstill(self._looks)
        if not does:
            return
        report = report or self._dump(self._pid)
        if why := patching(report or {}):
            raise ProbeError(f"{self._question.target.shown}: {why}")
        at = place(report) if report else ""
        at = f" at {at}" if at else " in a call that nothing interrupts"
        target = self._question.target
        what = f"importing {target.app.partition(':')[0]}" if target.app else f"setting up {target.shown}"
        raise ProbeError(
            f"{what} did not end within {clock() - self._began:.0f} s: its main greenlet {does}"
            f"{at}; check a program that serves or loops there as a command"
            " (-- python …), or give a later --after"
        )

    # a command

    def idles(self, now: float) -> bool:
        """Return whether the processes of a command do nothing, by several calls."""
        if now >= self._next or not self._looks:
            self._next = now + _INTERVAL
            self._looks.append(Look(now, None, self._processes.used()))
        return standstill(self._looks) == "waits"

    def give_up(self, why: str, deaf: int) -> None:
        """Begin to give up a command for the reason ``why``; ``deaf``: a process that does not react."""
        pid = deaf or self._processes.youngest()
        self._giving_up = (why, pid, clock() - (_REACTS if deaf else 0.0))
        if not deaf:
            send(pid, SIGNAL)

    def given_up(self, now: float) -> bool:
        """Return whether it is being given up; raise ProbeError once it has said where it is, or cannot."""
        if self._giving_up is None:
            return False
        why, pid, asked = self._giving_up
        told, shown = self._processes.told(pid), self._question.target.shown
        if told and (patches := patching(told)):
            raise ProbeError(f"{shown}: {patches}")
        if told is None or told["heard"] < asked:
            if now < asked + _REACTS:
                return True
            told = self._dump(pid)
        at = place(told) if told else ""
        is_at = f"; its process {pid} is at {at}" if at else ""
        raise ProbeError(f"{shown}: {why}; give a later --after if one will{is_at}")

    def _dump(self, pid: int) -> dict[str, Any] | None:
        """Return where a process is that does not react; None where that cannot be found out."""
        until = clock() + _REACTS
        found = None
        if send(pid, DUMP_SIGNAL):
            while found is None and clock() < until:
                time.sleep(_POLL)
                texts = [self._read(str(path)) for path in self._outbox.glob("stack-*")]
                each = (dumped(text.decode(errors="replace"), _AGENT) for text in texts)
                found = next(filter(None, each), None)
        return found
