"""Decide which requests give up their slots, so that those through which little comes do not hold all.

A response may take minutes for a few bytes, whatever the reason. Such requests may hold a part of the slots
only while others wait, and none where a mirror has the file. What is beyond that is preempted: it ends, is
not counted as an attempt, and is started again when nothing else can be, or at the mirror. This is a
multilevel feedback queue (F. J. Corbató, 1962): a request that has used up its allotment of time is
demoted, and gets ``GROWTH`` times as much the next time. So a large file over a slow line is begun again a
few times at most, which together take no longer than a third of the time that it needs.

The allotment follows from what responses take that do end, on average, and slow ones of the same host. A
request that receives ``WORTH`` bytes gets it anew.

Where nothing ends at all, the network or a server may be held up as a whole. Then the allotment is longer,
and a host that does not answer loses few requests at first, until others are seen to end in the freed
slots.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from downloader.core.host import Host

__all__ = ["GROWTH", "SOONEST", "WORTH", "Held", "Preemption", "Untaken"]

GROWTH = 4
"""By what factor the allotment of a request grows each time that it is demoted."""
WORTH = 4 << 10
"""Bytes that are worth a slot for as long as the allotment lasts."""
SOONEST = 0.5
"""Seconds after which a request may be sent again that its server has not taken."""
_SHARE = 2  # one in so many slots may be held by slow requests while others wait
_SHORTEST, _SILENT, _LONGEST = 0.5, 2.0, 60.0  # seconds of an allotment; the second while nothing ends
_TIMES_USUAL = 4
_RECENT = 1.0  # seconds within which something has ended, or a host has answered
_FIRST_LOST = 16  # a host that does not answer loses one in so many of its requests, then twice as many, …
_HALF_LIFE = 10.0  # seconds in which half of what a slow response took is forgotten
_WEIGHT = 4  # of what was usual so far, against a new measurement, less one
_MAX_STEP = 0.5  # seconds; what passes beyond that between two observations, the process was held up
_MAX_HOSTS = 1000


class Job(Protocol):
    """A job. ``attempts``, ``cut_off``, ``demotions``: how often it has failed, and was begun again.

    ``stranded``: how often it was sent again on another connection.
    """

    host: Host
    attempts: int
    cut_off: int
    demotions: int
    stranded: int


class Held(NamedTuple):
    """A request that holds a slot.

    ``key``: what carries it; ``since``: when the wait for its response began; ``received``: bytes of it so
    far; ``parked``: it holds a slot of its host only; ``blocks``: others wait behind it on its connection.
    """

    key: Hashable
    job: Job
    since: float
    received: int
    parked: bool = False
    blocks: bool = False


class Untaken(NamedTuple):
    """A request, waiting ``since`` then, that the system of ``peer`` has not acknowledged.

    ``key``: what carries it.
    """

    key: Hashable
    job: Job
    since: float
    peer: Hashable


@dataclass(slots=True)
class _Mark:
    """When a request was first seen, when it last got an allotment, and what it had received then.

    ``told``: when it was last overdue.
    """

    job: Job
    tries: int
    since: float
    began: float
    at: float
    received: int
    told: float = 0.0


def _tries(job: Job) -> int:
    return job.attempts + job.cut_off + job.demotions


class Preemption:
    """The requests of a worker that hold slots, observed several times a second."""

    def __init__(self) -> None:
        # Seconds in which the process was not held up.
        self._clock = self._now = 0.0
        self._marks: dict[Hashable, _Mark] = {}
        self._slow: list[Held] = []
        self._usual = 0.0
        self._took: dict[str, tuple[float, float]] = {}  # by host: what a slow response took, and when
        self._lost: dict[str, tuple[float, int]] = {}  # by host: when it last lost requests, and how many
        self._finished, self._finished_at = 0, -_RECENT
        self._preempted_at = self._helped = 0.0
        self._held_up = False

    def observe(
        self, now: float, held: Sequence[Held], *, finished: int, slots: int, waiting: bool
    ) -> list[Held]:
        """Return which of the ``held`` requests are to be preempted.

        ``finished``: how many have ended so far; ``slots``: how many there are; ``waiting``: all of them
        are held, and others wait for one.
        """
        self._held_up = held_up = now - self._now > _MAX_STEP
        elapsed = min(now - self._now, _MAX_STEP) if self._now else 0.0
        seen, self._now = self._now, now
        self._clock += elapsed
        self._measure(self._mark(held, seen), finished)
        self._slow = []
        if held_up:
            return []  # what has arrived meanwhile is not read yet
        slow = [each for each in held if self._is_slow(each)]
        chosen = self._excess([each for each in slow if each.blocks], 0)
        if waiting:
            others = [each for each in slow if not (each.parked or each.blocks)]
            chosen += self._excess(others, slots // _SHARE)
        relieved = {each.job.host.key for each in chosen}
        for host, of_host in _by_host(slow):
            if host.queue and host.active >= host.allowed and host.key not in relieved:
                chosen += self._excess(of_host, host.allowed // _SHARE)
        self._end(chosen)
        self._slow = [each for each in slow if each.key in self._marks]
        return chosen

    def overdue(self) -> list[Held]:
        """Return which of the requests observed last have nothing to lose where their files are elsewhere.

        Those are slow for longer than it took to receive what they have. Each is returned once in its
        allotment.
        """
        found = []
        for each in self._slow:
            mark, least = self._marks[each.key], max(_SILENT, self._allotted(each))
            slow_for = self._clock - mark.at
            if slow_for >= max(least, mark.at - mark.began) and self._clock - mark.told >= least:
                mark.told = self._clock
                found.append(each)
        return found

    def leave(self, overdue: list[Held]) -> list[Held]:
        """Return which of ``overdue``, whose files can be had elsewhere, are to be preempted now."""
        chosen = self._excess(overdue, 0)
        self._end(chosen)
        return chosen

    def stranded(self, untaken: Iterable[Untaken], idle: Mapping[Hashable, int]) -> list[Untaken]:
        """Return which of ``untaken`` are to be sent again; ``idle``: number of idle connections by peer.

        They go to an idle connection, or to a new one where the host has answered others since. Where the
        queue of a listening socket is full (that of Python's ``http.server`` has 5 places), Linux lets
        clients wait for half a minute, after it has told them that they are connected. A server that has
        got a request is waited for, however long it takes: the request may be worth it, or valid once.
        """
        if self._held_up:
            return []
        left = dict(idle)
        chosen = []
        for each in sorted(untaken, key=lambda each: each.since):
            job = each.job
            if self._now - each.since < max(SOONEST, self._much(job)) * GROWTH**job.stranded:
                continue
            if left.get(each.peer, 0) > 0:
                left[each.peer] -= 1
                chosen.append(each)
            elif job.host.answered > each.since:
                chosen.append(each)
        return chosen

    def _end(self, chosen: list[Held]) -> None:
        for each in chosen:
            del self._marks[each.key]
        if chosen:
            self._preempted_at = self._clock

    def _allotted(self, each: Held) -> float:
        return self.allotment(each.job, self._marks[each.key].at)

    def allotment(self, job: Job, at: float = 0.0) -> float:
        """Return the seconds in which a request for ``job`` must receive ``WORTH`` bytes, or end.

        ``at``: when it got them. Only what has ended since then shows that not everything is held up.
        """
        ended = self._finished_at
        finishing = self._clock - ended < _RECENT and ended - at >= _SHORTEST / 2
        helped = self._helped and self._clock - self._preempted_at < _SILENT
        least = _SHORTEST if finishing or helped else _SILENT
        return float(min(max(least, self._much(job)), _LONGEST) * GROWTH**job.demotions)

    def _much(self, job: Job) -> float:
        """Return several times the seconds that responses take, of the host of ``job`` or of all."""
        return max(self._usual, self._slowest(job.host.key)) * _TIMES_USUAL

    def _mark(self, held: Iterable[Held], seen: float) -> list[float]:
        """Take ``held`` into account; return how long those took that have ended well since ``seen``."""
        before, self._marks = self._marks, {}
        over = []
        for each in held:
            mark = before.pop(each.key, None)
            if mark is not None and mark.since == each.since:
                if each.received - mark.received >= WORTH:
                    mark.at, mark.received = self._clock, each.received
            else:
                if mark is not None:
                    over.append(mark)  # the connection goes on with another response
                job = each.job
                began = self._clock - min(self._now - each.since, _MAX_STEP)
                mark = _Mark(job, _tries(job), each.since, began, began, each.received)
            self._marks[each.key] = mark
        over += [mark for mark in before.values() if mark.job.host.answered >= seen]
        ended = [mark for mark in over if _tries(mark.job) == mark.tries]
        for mark in ended:
            self._record_slow(mark.job.host.key, self._clock - mark.began)
        return [self._clock - mark.began for mark in ended]

    def _record_slow(self, key: str, took: float) -> None:
        if took < _SHORTEST:
            return
        if len(self._took) >= _MAX_HOSTS:
            self._took.clear()
        self._took[key] = max(took, self._slowest(key)), self._clock

    def _slowest(self, key: str) -> float:
        """Return what slow responses of host ``key`` have taken lately, 0 if there were none."""
        took, at = self._took.get(key, (0.0, 0.0))
        return float(took * 0.5 ** ((self._clock - at) / _HALF_LIFE))

    def _measure(self, ended: list[float], finished: int) -> None:
        """Measure what responses usually take. ``ended``: seconds that some took, the others took less."""
        count, self._finished = max(finished - self._finished, len(ended)), finished
        if count:
            self._usual += (sum(ended) / count - self._usual) / _WEIGHT
            self._finished_at = self._clock
            self._helped = self._helped or bool(self._preempted_at)
        elif self._clock - self._preempted_at > _SILENT:
            self._helped = False

    def _is_slow(self, each: Held) -> bool:
        return self._clock - self._marks[each.key].at >= self._allotted(each)

    def _excess(self, slow: list[Held], kept: int) -> list[Held]:
        """Return those of ``slow`` that are more than ``kept``, the slowest first, of equals the latest."""
        most = len(slow) - kept
        if most <= 0:
            return []

        def order(each: Held) -> tuple[int, float]:
            return int(each.received / (self._now - each.since + 1)).bit_length(), -each.since

        chosen: list[Held] = []
        taken: dict[str, int] = {}
        for each in sorted(slow, key=order):
            host = each.job.host
            count = taken.get(host.key, 0)
            if count < self._most_of(each):
                taken[host.key] = count + 1
                chosen.append(each)
                if len(chosen) == most:
                    break
        if len(self._lost) >= _MAX_HOSTS:
            self._lost.clear()
        self._lost.update({key: (self._clock, count) for key, count in taken.items()})
        return chosen

    def _most_of(self, slow: Held) -> int:
        """Return how many requests the host of ``slow`` may lose now.

        All of them where it goes on answering others. That it has answered before ``slow`` was sent, or
        soon after, says nothing: it may be held up since.
        """
        host, allotment = slow.job.host, self._allotted(slow)
        silent, slow_for = self._now - host.answered, self._clock - self._marks[slow.key].at
        part = allotment / _TIMES_USUAL
        if silent < max(_RECENT, part) and slow_for - silent >= part:
            return host.active
        at, count = self._lost.get(host.key, (-allotment, 0))
        if self._clock - at < allotment:
            return 0
        return max(1, host.allowed // _FIRST_LOST, count * 2)


def _by_host(slow: Iterable[Held]) -> Iterable[tuple[Host, list[Held]]]:
    found: dict[str, tuple[Host, list[Held]]] = {}
    for each in slow:
        host = each.job.host
        found.setdefault(host.key, (host, []))[1].append(each)
    return found.values()
