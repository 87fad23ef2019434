"""Find what contradicts the times that a process has measured: its clock may be stopped or replaced. Pure.

The agent reads clocks that hardly anything replaces (``agent/https_agent/clocks.py``). Where something
does, there is no verdict.
"""

from __future__ import annotations

from typing import Any

from diagnostics.model import Observation, Question

__all__ = ["contradiction"]

_EARLY = 0.1  # fraction of a delay by which a response may come early
_ROOM = 0.5  # seconds by which two clocks may differ, for a report that was written late
_SHARE = 0.2


def contradiction(question: Question, seen: Observation) -> str:
    """Return what contradicts the times of ``seen``, and what to do about it; "" if nothing does."""
    own, real = seen.passed or (0.0, 0.0)
    if abs(own - real) > _ROOM + _SHARE * abs(real):
        return (
            f"the clock of the process is stopped or replaced: by it the probe took {own:.2f} s,"
            f" and {real:.2f} s by the kernel's; check it without what does that (libfaketime, for example)"
        )
    counts = seen.served or {}
    untrue = (_untrue(each, question, counts.get(each["run"])) for each in seen.result["rounds"])
    found = next(filter(None, untrue), "")
    if not found:
        return ""
    clock = "" if seen.passed else "its clock is stopped or replaced, or "
    return f"{found}: {clock}its fetch returns before the response is there; {_ADVICE}"


_ADVICE = "give a fetch that waits for it, with --app MODULE:CALLABLE"


def _untrue(each: dict[str, Any], question: Question, counts: dict[str, Any] | None) -> str:
    """Return what the server's record contradicts in a round; "" if it does not, or there is none."""
    if counts is None or not counts["requests"] or not each["delay"] or not each["done"]:
        return ""
    wall, delay = each["wall"], question.delay
    waited = sum(counts["levels"][1:])
    took = f"{each['requests']} requests at once took {wall:.2f} s"
    if wall < delay * (1 - _EARLY):
        return f"{took}, and the server answers each after {delay:g} s"
    # What a client gave up may be with the server for another delay.
    if waited > wall + delay + _ROOM:
        return f"{took}, and the server had requests waiting for {waited:.2f} s"
    return ""
