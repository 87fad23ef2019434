"""Decide whether HTTPS was concurrent, from how the time grows with the delay, not from the time alone.

Ten sessions cost 0.2 s of CPU for their TLS contexts on any machine, and a busy machine is slow. Whatever
costs the same with and without the delay is not serialization. So the same N requests are made at no delay
and at the delay D, and the *slope* (W(D) - W(0)) / D is 1 where the waiting overlaps and N where it does
not. Time in which the process had no CPU is left out. For a fetch that makes several requests in a row, the
time grows by as many delays. Of repeated pairs the minimum counts, since noise only adds.

Connections that are open by then hide what is slow while they are opened: there the pass at no delay is the
slow one, and greenlets go on one by one in it (``diagnostics.opened``).

The server's own counts have to agree: for how long it saw only a few requests waiting. One moment in which
all of them waited says nothing about the rest. A run that takes far longer than N simultaneous requests is
concurrent only if something explains it: a rate, or a pool (``diagnostics.waits``).

Pure; the numbers come from ``agent/https_agent/probe.py`` and ``origin.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from diagnostics.clock_check import contradiction
from diagnostics.errors import ProbeError
from diagnostics.model import Observation, Question, Verdict
from diagnostics.opened import Queue, queue_of
from diagnostics.redaction import quoted, redact
from diagnostics.waits import limit_of, queued, stand_in_line

__all__ = ["Judgement", "judge", "least_slope", "opening"]

# Holding the hub for fewer delays than this in N requests is the normal cost of the requests.
_HELD = 1.5
_MACHINERY = re.compile(
    r"/gevent/|/ssl\.py$|/OpenSSL/|/urllib3/|/requests/|/socket\.py$|/http/client\.py$|<frozen"
)
_LEAST_CPU = 0.1
_SHORTEST_WAIT = 0.02
# From this many delays beyond those of N simultaneous requests on, a reason is reported.
_TELLING = 0.8
_ALONE = 2.0  # times as long as others is what opens connections where that alone is slow
_ROOM = 0.5  # delays by which the server's counts may differ


class Served(NamedTuple):
    """A round as the server saw it.

    ``requests``: how many came, of ``many`` expected; ``mean`` and ``peak``: how many waited at once, on
    average and at most; ``few``: delays during which a quarter of the ``many`` or fewer waited.
    """

    requests: int
    many: int
    mean: float
    peak: int
    few: float

    @property
    def chain(self) -> float:
        """Return how many requests a fetch makes in a row, if none of them are simultaneous."""
        return max(1.0, self.requests / self.many)


@dataclass(frozen=True)
class Judgement:
    """A verdict with the numbers behind it.

    - ``wall``: seconds that N requests took; ``delay``: seconds that one waits, 0 where the pass was
      slow in which connections are opened;
    - ``blocked`` and ``busy``: seconds that something held the hub without and with using the CPU;
    - ``error``: the text of the first error;
    - ``concurrency``: how many requests waited at once, on average over ``wall``;
    - ``limit``: how the program limits itself (``rate-limit``, ``small-pool``, ``time-elsewhere``);
    - ``served``: what the server saw;
    - ``queue``: where greenlets queued for each other while connections were opened, and took long.
    """

    verdict: Verdict
    wall: float
    delay: float
    slope: float
    blocked: float
    busy: float
    error: str = ""
    problem: str = ""
    concurrency: float = 0.0
    limit: str = ""
    served: Served | None = None
    queue: Queue | None = None


class _Pair(NamedTuple):
    """A round at the delay, with the round at no delay before it.

    ``slope``: in delays; ``excess``: delays beyond those of N simultaneous requests; ``served``: None where
    the server's counts are not available.
    """

    wall: float
    slope: float
    excess: float
    served: Served | None

    @property
    def chain(self) -> float:
        """Return how many requests a fetch makes in a row."""
        return self.served.chain if self.served else 1.0

    def together(self, many: int) -> float:
        """Return how many requests were simultaneous, on average over the time without computing."""
        return many * self.chain / max(1.0, self.excess + self.chain)

    def serial(self, many: int) -> bool:
        """Return whether a third of the fetches or more waited for each other, and the server agrees."""
        grown = self.slope >= least_slope(many) + self.chain - 1
        return grown and (self.served is None or self.served.few >= least_slope(many) - _ROOM)


def least_slope(requests: int) -> float:
    """Return the minimum slope at which ``requests`` count as serialized.

    It is a third of the way from 1 to ``requests``, the slope of one request at a time; the other two
    thirds are left as room for pools and noise.
    """
    return 1 + (requests - 1) / 3


def judge(question: Question, seen: Observation) -> Judgement:
    """Return the verdict on ``seen``; raise ProbeError where what was measured cannot be true.

    Where another client than the application's was measured, the result is not the application's: it is
    never reported as concurrent then.
    """
    # The probe may have taken a shorter delay than it was told to.
    question = replace(question, delay=seen.result.get("delay", question.delay))
    if problem := contradiction(question, seen):
        target = question.target
        who = target.shown if target.style or target.app or target.command else "this process"
        raise ProbeError(f"{who}: {problem}")
    found = _measured(question, seen)
    foreign = " and ".join(each["name"] for each in seen.result.get("foreign", ()))
    if not foreign or found.verdict != "concurrent":
        return found
    error = f"the client that is loaded, {foreign}, is not one that gevent makes concurrent"
    return replace(found, verdict="error", error=error, limit="")


def _measured(question: Question, seen: Observation) -> Judgement:
    result, many = seen.result, question.requests
    rounds: list[dict[str, Any]] = result["rounds"]
    measured = [each for each in rounds if each["requests"] == many and not _is_warm_up(each, question)]
    blocked, busy = holds(seen.held)
    pairs = [] if question.url else _pairs(question, seen)
    best = min(pairs, key=lambda each: each.slope, default=None)
    delay, slope, wall = _growth(question, rounds, measured, best)
    errors = [text for each in reversed(rounds) for text in each["first"]]
    error = ": ".join(filter(None, (errors[0]["class"], _one_line(errors[0]["text"])))) if errors else ""
    done = sum(each["done"] for each in measured)
    failed = sum(each["errors"] for each in measured)
    served = best.served if best else None
    together = done / len(measured) * (best.chain if best else 1.0) * delay if measured else 0.0
    concurrency = min(many, together / wall) if wall else 0.0
    limit = _limit(question, seen, pairs, slope)
    queue = _queue(question, seen, pairs)

    def give(verdict: Verdict, limit: str = "") -> Judgement:
        problem = result["problem"] or ""
        return Judgement(
            verdict, wall, delay, slope, blocked, busy, error, problem, concurrency, limit, served, queue
        )

    if result["problem"] and not measured:
        return give("error")
    if not done or (not failed and served is not None and served.requests < many / 2):
        return give("error")
    if pairs and all(each.serial(many) for each in pairs):
        return give("serialized")
    if question.url and slope >= least_slope(many) and not seen.paced:
        return give("serialized")
    share = many / max(1, sum(each["requests"] for each in rounds))
    slowest = max(pairs, key=lambda each: each.wall, default=None)
    if max(blocked, busy) * share > _HELD * delay and not question.url:
        # The waiting may overlap, but the time is spent in what holds the hub, in some of the pairs.
        return _of_pair(give("serialized"), many, slowest, opening(question, seen))
    if question.url and blocked * share > wall / 2:
        return give("serialized")
    if failed:
        return give("error")
    if queue is not None and queue.sure:
        opened = opening(question, seen) or wall
        return replace(give("serialized"), wall=opened, delay=0.0, concurrency=1.0, served=None)
    if pairs and not limit and min(each.excess for each in pairs) >= least_slope(many):
        limit = "time-elsewhere"
        if _in_turn(question, seen, pairs):
            return give("serialized")
    return give("concurrent", limit)


def opening(question: Question, seen: Observation) -> float | None:
    """Return the seconds of the first pass of N requests at no delay, which open their connections."""
    found = _opening(question, seen)
    return float(found["wall"]) if found else None


def _opening(question: Question, seen: Observation) -> dict[str, Any] | None:
    passes: list[dict[str, Any]] = seen.result["rounds"]
    opening = (
        each for each in passes if each["requests"] == question.requests and _is_warm_up(each, question)
    )
    return next(opening, None)


def _queue(question: Question, seen: Observation, pairs: list[_Pair]) -> Queue | None:
    """Return where greenlets queued while connections were opened, where that alone took long."""
    many = question.requests
    each = _opening(question, seen)
    if each is None or not pairs:
        return None
    excess = (each["wall"] - each["cpu"] - each["ready"]) / question.delay
    # A rate keeps the other passes back as well.
    least = max(least_slope(many), _ALONE * min(pair.excess for pair in pairs))
    queue = queue_of(each.get("opening"), many) if excess >= least else None
    # What the program asks, on the same machine, may have had no CPU for as long as the hub's thread.
    if queue is not None and excess - each["ready"] / question.delay < least:
        return queue._replace(sure=False)
    return queue


def _of_pair(found: Judgement, many: int, pair: _Pair | None, opened: float | None) -> Judgement:
    """Return ``found`` with the time of ``pair``, or of the pass that ``opened`` the connections.

    That is the slow one where what holds the hub does so while connections are opened: it lets on one of
    them at a time.
    """
    if pair is None or not pair.wall:
        return found
    if opened is not None and opened > pair.wall and pair.wall < least_slope(many) * found.delay:
        return replace(found, wall=opened, delay=0.0, concurrency=1.0)
    return replace(found, wall=pair.wall, concurrency=found.concurrency * found.wall / pair.wall)


def _is_warm_up(each: dict[str, Any], question: Question) -> bool:
    return not question.url and each["delay"] == 0.0


def _limit(question: Question, seen: Observation, pairs: list[_Pair], slope: float) -> str:
    """Return the limit that the program sets itself, where the time shows it, or the server and a queue do.

    On a busy machine the time alone shows nothing: what the program did without a CPU was done while it
    waited.
    """
    result = seen.result
    if question.url:
        together = question.requests / max(1.0, slope)
        return limit_of(result, question.requests, together) if slope > 1 + _TELLING else ""
    if not pairs:
        return ""
    many = question.requests
    if min(each.excess for each in pairs) >= _TELLING:
        limit = limit_of(result, many, min(each.together(many) for each in pairs))
        # Greenlets that wait for threads look as if they waited in a queue.
        all_at_once = all(each.served and each.chain == 1.0 and each.served.peak >= many for each in pairs)
        return "" if limit == "small-pool" and all_at_once else limit
    peaks = [each.served.peak for each in pairs if each.served and each.chain == 1.0]
    if len(peaks) < len(pairs) or not 1 < max(peaks) <= many / 2:
        return ""
    return "small-pool" if stand_in_line(result, many / 2) else ""


def _in_turn(question: Question, seen: Observation, pairs: list[_Pair]) -> bool:
    """Return whether the requests were made one by one, for whatever reason.

    They were if greenlets waited in a queue, or if the server saw few requests at once and lack of CPU does
    not explain that.
    """
    many = question.requests
    if queued(seen.result, many, 0.0) is not None:
        return True
    few = min(each.served.few if each.served else 0.0 for each in pairs)
    return bool(seen.result["scheduler"]) and few >= least_slope(many) - _ROOM


def _pairs(question: Question, seen: Observation) -> list[_Pair]:
    many, delay = question.requests, question.delay
    found = []
    rounds: list[dict[str, Any]] = seen.result["rounds"]
    for before, each in pairwise(rounds):
        if each["requests"] != many or not each["delay"] or before["delay"]:
            continue
        served = _served(question, seen, each["run"])
        own = each["wall"] - each["ready"]
        slope = (own - (before["wall"] - before["ready"])) / delay
        excess = (own - each["cpu"]) / delay - (served.chain if served else 1.0)
        found.append(_Pair(each["wall"], slope, excess, served))
    return found


def _served(question: Question, seen: Observation, run: str) -> Served | None:
    if seen.served is None:
        return None
    many, delay = question.requests, question.delay
    counts = seen.served.get(run, {"requests": 0, "peak": 0, "levels": [0.0]})
    levels: list[float] = counts["levels"]
    mean = sum(count * seconds for count, seconds in enumerate(levels)) / max(sum(levels), delay)
    few = sum(levels[1 : max(1, many // 4) + 1]) / delay
    return Served(counts["requests"], many, mean, counts["peak"], few)


def _growth(
    question: Question,
    rounds: list[dict[str, Any]],
    measured: list[dict[str, Any]],
    best: _Pair | None,
) -> tuple[float, float, float]:
    """Return the delay of one request, the slope, and the wall time of N."""
    if not measured:
        wall = rounds[-1]["wall"] if rounds else 0.0
        return question.delay, 0.0, wall
    if not question.url:
        if best is None:
            return question.delay, measured[-1]["wall"] / question.delay, measured[-1]["wall"]
        return question.delay, best.slope, best.wall
    single = min(rounds[1:3] or rounds[:1], key=lambda each: each["wall"])
    quickest = min(measured, key=lambda each: each["wall"])
    waits = single["wall"] - single["cpu"]
    if waits < _SHORTEST_WAIT:
        return single["wall"], 0.0, quickest["wall"]  # too fast to be judged by the time
    slope = (quickest["wall"] - question.requests * single["cpu"]) / waits
    return single["wall"], slope, quickest["wall"]


def holds(held: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the seconds that one line held the hub while waiting, and one function while computing.

    Each is the maximum over single places. On a busy machine a thread that has the GIL may be without a
    CPU, and the sampler waits for it, at different places. A function that computes more than it waits is
    not counted as waiting: a virtual machine's host takes time that no account of a thread shows. What
    computes is counted together with the time in which it got no CPU, and only outside of the HTTPS
    libraries, whose cost every process pays: making a TLS context reads the CA bundle, 20 ms for each
    session.
    """
    places: dict[Any, list[dict[str, Any]]] = {}
    for each in held:
        file, _, function = each["stack"][0] if each["stack"] else ("", 0, "")
        places.setdefault((file, function), []).append(each)
    blocked = busy = 0.0
    for (file, _), at in places.items():
        used = sum(each["cpu"] for each in at)
        wanted = used + sum(each["ready"] for each in at)
        waits: dict[int, float] = {}
        for each in at:
            line = each["stack"][0][1] if each["stack"] else 0
            waits[line] = waits.get(line, 0.0) + waited(each)
        if sum(waits.values()) > wanted:
            blocked = max(blocked, *waits.values())
        if used > wanted * _LEAST_CPU and not _MACHINERY.search(file.replace("\\", "/")):
            busy = max(busy, wanted)
    return blocked, busy


def waited(held: dict[str, Any]) -> float:
    """Return the seconds in which what held the hub neither computed nor was ready to.

    Time without a CPU on a busy machine is not waiting.
    """
    return max(0.0, float(held["seconds"] - held["cpu"] - held["ready"]))


def _one_line(text: str) -> str:
    return quoted(redact(" ".join(text.split()))[:300])
