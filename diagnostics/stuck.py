"""Decide whether a set-up has come to a standstill, and say where. Pure.

An import may take long on a busy machine. It stands still if its main greenlet is at the same line of the
user's modules in several looks, if nothing more has been imported meanwhile, and if its processes neither
compute nor wait for a CPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from diagnostics.source_places import ending, here, is_own, is_package, where

__all__ = ["Look", "dumped", "patching", "place", "standstill"]

_SAME = 4.5  # seconds in which nothing has moved
_IDLE = 0.1  # CPUs
_COMPUTES = 15.0  # seconds of CPU after which it does not count any more as an import that computes
_FRAME = re.compile(r'^\s*File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_LIBRARY = re.compile(r"^(.*/(?:lib|lib64)/(?:python|pypy)\d[\d.]*)/")


class Look(NamedTuple):
    """A look at a set-up.

    ``at``: the time; ``report``: what the agent says of its main greenlet, None if it does not react;
    ``used``: the seconds in which its processes had a CPU, or waited for one.
    """

    at: float
    report: Mapping[str, Any] | None
    used: float

    @property
    def _state(self) -> Any:
        if self.report is None:
            return None
        lines = [tuple(spot) for spot in self.report["at"] if spot[2] == "<module>"]
        return self.report["modules"], lines or self.report["at"][:1]

    def same(self, other: Look) -> bool:
        """Return whether nothing has moved between the two."""
        return bool(self._state == other._state)


def standstill(looks: Sequence[Look]) -> str:
    """Return what the set-up does that does not go on: ``waits``, ``computes``; "" if it goes on."""
    last = looks[-1]
    begin = last
    for look in reversed(looks):
        if not look.same(last):
            break
        begin = look
    if last.at - begin.at < _SAME:
        return ""
    if last.used - begin.used < _IDLE * (last.at - begin.at):
        return "waits"
    return "computes" if last.report is not None and last.used >= _COMPUTES else ""


def place(report: Mapping[str, Any]) -> str:
    """Return where the main greenlet is: the user's line, and what it has called; "" if it is nowhere."""
    if "at" not in report:
        return ""  # a process that says only why it is not to be probed yet
    facts = {"started": here(), **report["facts"]}
    written = facts.get("sources", {})
    spots = [spot for spot in report["at"] if not str(spot[0]).startswith("<") or spot[0] in written]
    if not spots:
        return ""
    own = next((spot for spot in spots if is_own(spot, facts)), spots[0])
    inner = f", in {spots[0][2]} at {where(spots[0], facts)}" if spots[0] != own else ""
    return f"{where(own, facts)}{inner}"


def patching(report: Mapping[str, Any]) -> str:
    """Return that gevent has not patched yet, with where it is and what helps; "" if it does not patch."""
    told = report.get("patching")
    if not told:
        return ""
    facts = {"started": here(), **report["facts"]}
    spots = [spot for spot in told["stack"] if "/gevent/" not in str(spot[0])]
    within = [spot for spot in spots if is_own(spot, facts) or is_package(str(spot[0]))]
    at = where((within or spots or told["stack"] or [None])[0], facts)
    inner = f", in {spots[0][2]} at {where(spots[0], facts)}" if within and spots[0] != within[0] else ""
    by = ending("at", where(told["by"], facts))
    return (
        f"{told['function']}(){by} has not returned{ending('and is at', at)}{inner}: nothing is measured"
        " before. gevent looks at each object that is there already, and one may load what it stands for:"
        " patch before that is imported (before the settings of Django are loaded, say)"
    )


def dumped(text: str, agent: str) -> dict[str, Any] | None:
    """Return the same report from the last stack that faulthandler wrote; None if there is none.

    ``agent``: the folder whose frames are left out.
    """
    last = text.rpartition("(most recent call first):")[2]
    spots = [(file, int(line), name) for file, line, name in _FRAME.findall(last)]
    spots = [spot for spot in spots if not spot[0].startswith(agent + os.sep)]
    libraries = [found[1] for file, _, _ in spots if (found := _LIBRARY.match(file))]
    facts = {"cwd": here(), "library": libraries[0] if libraries else None}
    return {"at": spots, "modules": 0, "facts": facts} if spots else None
