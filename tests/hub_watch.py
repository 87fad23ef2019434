"""Watch the hubs of the runs that a test starts: nothing may hold one for long.

The watch is that of ``python -m diagnostics watch``, in each process that has a hub: workers, some feeders.
A hold counts by the time in which its thread computed or waited in a system call, without the time in which
the machine had no CPU for it. So a busy machine is no reason to fail. A busy disk would be: one open() can
wait for half a second until what others have written is on it. So waiting may last longer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from diagnostics.agent.https_agent.life import VARIABLE
from diagnostics.hold_report import Held, Seen
from diagnostics.launch import new_outbox, read_report, write_spec
from diagnostics.unpacking import agent_in

__all__ = ["MAX_HOLD", "MAX_WAIT", "Watched", "environment", "watching"]

MAX_HOLD, MAX_WAIT = 0.3, 5.0
"""Seconds for which code that computes, or one that waits in the system, may hold a hub in a test.

See ``python -m diagnostics watch --max-block``.
"""

_specs: list[Path] = []  # of the watches that are on, the innermost last


class Watched:
    """The outbox of a watch; ``max_wait``: see ``MAX_WAIT``."""

    def __init__(self, outbox: Path, max_wait: float) -> None:
        self._outbox = outbox
        self._max_wait = max_wait

    def seen(self) -> list[Seen]:
        """Return what was seen in each process so far."""
        found = []
        for path in sorted(self._outbox.glob("*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(read_report(str(path)), type=Seen))
        return found

    def troubles(self) -> list[str]:
        """Return why processes could not be watched."""
        return [
            f"the watch of process {each.pid} failed: {each.trouble}"
            for each in self.seen()
            if each.trouble
        ]

    def holds(self) -> list[str]:
        """Return what has held hubs of ours, each with its stack."""
        told = []
        for each in self.seen():
            for held in (*each.held, *each.lasting):
                if held.doing == "computing" or min(held.own, held.longest) >= self._max_wait:
                    told.append(_told(each.pid, held))
        return told


def _told(pid: int, held: Held) -> str:
    head = (
        f"process {pid}: {held.count} x, {held.own:.2f} s in all ({held.cpu:.2f} s computing), {held.doing}"
    )
    return "\n    ".join([head, *held.spots()])


def environment() -> dict[str, str]:
    """Return what the environment of a run needs in addition, so that it is watched; {} if no watch is on.

    PYTHONPATH has to come first.
    """
    return {VARIABLE: str(_specs[-1]), "PYTHONPATH": str(agent_in(_specs[-1].parent))} if _specs else {}


@contextlib.contextmanager
def watching(folder: Path, max_hold: float = MAX_HOLD, max_wait: float = MAX_WAIT) -> Iterator[Watched]:
    """Watch what is started meanwhile; ``folder`` is an empty directory."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    outbox = new_outbox(folder)
    spec = {"mode": "watch", "outbox": str(outbox), "max_block": max_hold}
    _specs.append(write_spec(folder, spec))
    try:
        yield Watched(outbox, max_wait)
    finally:
        _specs.pop()
