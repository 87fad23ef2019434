"""Combine what the process and the server recorded of a round: which request waited, which held the hub.

Pure. The record comes from the process under check, so what does not fit is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from diagnostics.model import Hold, Observation, Question, RequestSpan, Timeline
from diagnostics.records import typed
from diagnostics.source_places import where

__all__ = ["timeline_of"]

_CLOCKS_AGREE = 0.5  # seconds by which a time of the server's may be outside of the round
_SHORTEST = 1e-3


@dataclass
class _Record:
    """What the agent records, see ``https_agent.timeline``."""

    began: float
    requests: list[tuple[int, float, float | None, bool]]
    holds: list[tuple[float, float, int | None, tuple[str, int, str] | None]]


@dataclass
class _Served:
    """What the server records, see ``origin``."""

    spans: list[tuple[int, float, float | None]] = field(default_factory=list)


def timeline_of(question: Question, seen: Observation, wall: float) -> Timeline | None:
    """Return the timeline of the round that took ``wall``, else of the last one; None if there is none."""
    rounds = [each for each in seen.result["rounds"] if each["requests"] == question.requests]
    chosen = next((each for each in rounds if each["wall"] == wall), rounds[-1] if rounds else None)
    # A round that was given up is in no list.
    told = chosen.get("timeline") if chosen else seen.result.get("timeline")
    try:
        record = typed(told, _Record)
        served = typed((seen.served or {}).get(chosen["run"] if chosen else "", {}), _Served)
    except ValueError:
        return None
    if not record.requests:
        return None
    start = record.began
    times = [time for _, *both, _ in record.requests for time in both if time is not None]
    end = start + chosen["wall"] if chosen else max([*times, *(each[1] for each in record.holds)])
    seconds = max(end - start, _SHORTEST)

    def at(time: float) -> float:
        return min(max(time - start, 0.0), seconds)

    waited: dict[int, list[tuple[float, float]]] = {}
    for index, came, left in served.spans:
        # The clock of the process is another one on Python 2.
        if start - _CLOCKS_AGREE <= came <= end + _CLOCKS_AGREE:
            waited.setdefault(index, []).append((at(came), at(end if left is None else left)))
    requests = [
        RequestSpan(index, at(began), None if ended is None else at(ended), failed, waited.get(index, []))
        for index, began, ended, failed in record.requests
    ]
    holds = [
        Hold(at(began), at(ended), owner, where(spot, seen.facts))
        for began, ended, owner, spot in record.holds
        if at(ended) > at(began)
    ]
    return Timeline(
        question.requests, chosen["delay"] if chosen else question.delay, seconds, requests, holds
    )
