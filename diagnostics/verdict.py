"""Whether it was concurrent: from how the time grows with the delay, not from the time alone.

Ten sessions cost 0.2 s of CPU for their TLS contexts on any machine, and a busy one is slow. What is
the same with and without the delay is not serialization. So the same N requests are made at no delay and
at the delay D, and the *slope* (W(D) - W(0)) / D is 1 where the waiting overlaps and N where it does
not. Of repeated pairs the least counts: noise only adds.

Pure; the numbers come from ``agent/https_agent/probe.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from diagnostics.model import Observation, Question, Verdict
from downloader.core.redact import redact

__all__ = ["Judgement", "judge", "least_slope"]

# What holds the hub for less than this many delays for N requests is the price of the requests.
_HELD = 1.5
_MACHINERY = re.compile(
    r"/gevent/|/ssl\.py$|/OpenSSL/|/urllib3/|/requests/|/socket\.py$|/http/client\.py$|<frozen"
)
_LEAST_CPU = 0.1
_SHORTEST_WAIT = 0.02


@dataclass(frozen=True)
class Judgement:
    """``wall``: seconds that N requests took; ``delay``: what one waits; ``blocked`` and ``busy``:
    seconds that something held the hub without and with using the CPU; ``error``: the first one."""

    verdict: Verdict
    wall: float
    delay: float
    slope: float
    blocked: float
    busy: float
    error: str = ""
    problem: str = ""


def least_slope(requests: int) -> float:
    """From this slope on ``requests`` count as serialized: two thirds of the way to one at a time are
    left as room for pools and noise."""
    return 1 + (requests - 1) / 3


def judge(question: Question, seen: Observation) -> Judgement:
    """The verdict on ``seen``."""
    result, many = seen.result, question.requests
    rounds: list[dict[str, Any]] = result["rounds"]
    measured = [each for each in rounds if each["requests"] == many and not _is_warm_up(each, question)]
    blocked, busy = holds(result["held"])
    delay, slope, wall = _growth(question, rounds, measured)
    told = [text for each in reversed(rounds) for text in each["first"]]
    error = f"{told[0]['class']}: {_one_line(told[0]['text'])}" if told else ""
    done = sum(each["done"] for each in measured)

    def give(verdict: Verdict) -> Judgement:
        return Judgement(verdict, wall, delay, slope, blocked, busy, error, result["problem"] or "")

    if result["problem"] and not measured:
        return give("error")
    if not done:
        return give("error")
    if slope >= least_slope(many) and not _overlapped(question, seen, measured, slope):
        return give("serialized")
    share = many / max(1, sum(each["requests"] for each in rounds))
    if max(blocked, busy) * share > _HELD * delay and not question.url:
        # The waiting may overlap; the time goes to what stands in between.
        return give("serialized")
    if question.url and blocked * share > wall / 2:
        return give("serialized")
    if any(each["errors"] for each in measured):
        return give("error")
    return give("concurrent")


def _is_warm_up(each: dict[str, Any], question: Question) -> bool:
    return not question.url and each["delay"] == 0.0


def _growth(
    question: Question, rounds: list[dict[str, Any]], measured: list[dict[str, Any]]
) -> tuple[float, float, float]:
    """Delay of one, slope, and wall time of N."""
    if not measured:
        wall = rounds[-1]["wall"] if rounds else 0.0
        return question.delay, 0.0, wall
    if not question.url:
        pairs = [
            (each["wall"] - rounds[index - 1]["wall"], each["wall"])
            for index, each in enumerate(rounds)
            if each in measured and index and rounds[index - 1]["delay"] == 0.0
        ]
        grown, wall = min(pairs) if pairs else (measured[-1]["wall"], measured[-1]["wall"])
        return question.delay, grown / question.delay, wall
    single = min(rounds[1:3] or rounds[:1], key=lambda each: each["wall"])
    best = min(measured, key=lambda each: each["wall"])
    waits = single["wall"] - single["cpu"]
    if waits < _SHORTEST_WAIT:
        return single["wall"], 0.0, best["wall"]  # too quick to tell from the time
    slope = (best["wall"] - question.requests * single["cpu"]) / waits
    return single["wall"], slope, best["wall"]


def _overlapped(
    question: Question, seen: Observation, measured: list[dict[str, Any]], slope: float
) -> bool:
    """Whether our server saw more of them wait at once than can be with that slope: the time went
    elsewhere. Twice as many and one are left as room."""
    peaks = [seen.served.get(each["run"], {}).get("peak", 0) for each in measured]
    return max(peaks, default=0) > min(question.requests / 2, 1 + 2 * question.requests / slope)


def holds(held: list[dict[str, Any]]) -> tuple[float, float]:
    """Seconds that one line held the hub waiting, and that one function held it computing.

    One place each: on a busy machine a thread that has the interpreter's lock may be without a CPU, and
    ours waits for it, now here, now there. What computes counts with the time in which it got no CPU, and
    only outside of the machinery of HTTPS, whose price every process pays: making a TLS context reads the
    CA bundle, 20 ms for each session.
    """
    waits: dict[Any, float] = {}
    computes: dict[Any, list[float]] = {}
    for each in held:
        file, line, function = each["stack"][0] if each["stack"] else ("", 0, "")
        waits[file, line] = waits.get((file, line), 0.0) + waited(each)
        if _MACHINERY.search(file.replace("\\", "/")):
            continue
        spent = computes.setdefault((file, function), [0.0, 0.0])
        spent[0] += each["cpu"]
        spent[1] += each["cpu"] + each["ready"]
    busy = [whole for used, whole in computes.values() if used > whole * _LEAST_CPU]
    return max(waits.values(), default=0.0), max(busy, default=0.0)


def waited(held: dict[str, Any]) -> float:
    """Seconds in which what held the hub neither computed nor wanted to: a busy machine is not a wait."""
    return max(0.0, float(held["seconds"] - held["cpu"] - held["ready"]))


def _one_line(text: str) -> str:
    return redact(" ".join(text.split()))[:300]
