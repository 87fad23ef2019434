"""Choose how many requests a worker has in flight at once: as many as pay, fewer when servers refuse.

This is hill climbing, as for the depth of a pipeline (``core.pipeline_depth``). The limit is multiplied
while that makes the worker finish more files a second. It does not grow where the CPU is the limit, nor
while fewer requests are in flight than it allows.

Where the limit does not grow, fewer are tried once, and whenever more were slower or the rate has fallen.
Fewer are kept if they are faster; after the rate has fallen also if they are as fast, since a server that
is overloaded may take long to recover. As long as they are as fast, fewer still are tried: a server may be
as slow with any number from some on.

``ConnectionLimit`` is a value, ``measured`` the function to the next one; ``Climb`` makes the measurements
from counters that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = [
    "FIRST",
    "MANY_HOSTS",
    "Climb",
    "ConnectionLimit",
    "Counters",
    "Sample",
    "adaptive",
    "fixed",
    "measured",
    "per_host",
    "refused",
    "spread",
]

FIRST = 32
"""Requests in flight at the start."""
_FIRST_OF_MANY = 128  # of a list over many hosts: one that is slow takes a smaller share of it
MANY_HOSTS = 9
"""From so many hosts on, a list counts as one over many hosts."""
_PER_HOST_OF_MANY = 8
_FEWEST = 8
_FEWEST_AS_FAST = 8  # fewer than these are kept only if they are faster
_GAIN = 1.05
_GAIN_OF_MANY = 1.15  # what many servers do in a second varies more
_LOSS = 0.9
_CLEAR_LOSS = 0.67
_FALLEN = 0.6  # of the rate at this limit so far; it must be seen twice
_AS_FAST = 0.95
_BEFORE_FEWER = 3  # measurements from which the rate at a limit follows
_WEIGHT = 4  # of the rate so far, against a new measurement, less one
_CLEAR_GAIN = 1.5  # one measurement suffices; a smaller gain may be chance and must be seen twice
_CLEAR_GAIN_OF_FEWER = 1.25  # the same where more were slower before, so that fewer were to be expected
_BUSY = 0.85  # share of the time with the CPU, or waiting for it, from which on the CPU is the limit
_IDLE_AGAIN = 0.7  # the same once it was the limit, so that chance does not make the difference
_IDLE = 0.2  # below this the limit is multiplied by 4, not by 2: the CPU is enough for that
_SECONDS = 1.0  # minimum duration of a measurement
_SHORTEST = 0.1  # seconds; in less, the share of the time with the CPU means nothing
# How often each connection finishes several files together in a measurement. Seconds in which many of them
# do so by chance are twice as fast as others.
_TIMES = 4
_FILES = 64  # in a measurement with fewer connections; in less, the rate is chance
_LONG = 5.0  # seconds after which a measurement of many files ends
# A measurement after a step ends though not every connection has finished a request: after so many mean
# latencies from before it, so many seconds at least, and after ``_LONG`` in any case.
_LATENCIES, _SHORT = 2, 1.5
_DRAINING = 10.0  # seconds, at most, in which connections beyond a smaller limit finish what they have sent
_REFUSED_WITHIN = 5.0  # seconds in which refused requests are counted together
_TRIES = 2  # measurements after a step; the limit grows on if each of them has a gain
_PAUSE, _MAX_PAUSE = 20, 640  # measurements until the next try, doubled each time

_CPU = "the CPU is the limit"
_REFUSING = "servers refused requests or connections"
_FEWER = "fewer were faster"
_NO_GAIN = "more were not faster"


class Sample(NamedTuple):
    """A measurement: ``rate`` finished requests a second.

    ``busy``: the share of the time in which the process had the CPU or waited for it.
    """

    rate: float
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """The maximum number of requests in flight.

    ``now``: at present; ``most``: the maximum it may grow to; ``stopped``: why it is not greater, "" while
    it grows; ``ceiling``: the reason once it is ``most``; ``by_user``: the user chose it.

    ``before``, ``came_from``: the measurement before the last step, and the limit then; ``tries``:
    measurements since; ``gains``: how many of them had a gain; ``wait``: measurements to skip before the
    next step; ``pause``: the next value of ``wait``. ``usual``: the mean rate at this limit, over ``held``
    measurements since it does not grow; ``fallen``: how many in a row were far below; ``try_fewer``: fewer
    are to be tried. ``fewer``: they are being tried, and kept if ``as_fast`` as ``before``; ``by_fewer``:
    this limit was found so. ``careful``: more were slower, so that steps are small; ``again``: how often
    fewer are tried once more then. ``best``: the greatest rate while the CPU was the limit, since a bad
    second must not make what follows the next step look like a gain. ``gain``: by what factor the rate must
    grow. ``needed``: others waited for as long as a measurement takes.
    """

    now: int
    most: int
    stopped: str = ""
    ceiling: str = "the maximum"
    by_user: bool = False
    before: Sample | None = None
    came_from: int = 0
    best: float = 0.0
    gain: float = _GAIN
    tries: int = 0
    gains: int = 0
    wait: int = 0
    pause: int = _PAUSE
    usual: float = 0.0
    held: int = 0
    fallen: int = 0
    try_fewer: bool = True
    fewer: bool = False
    as_fast: bool = False
    by_fewer: bool = False
    careful: bool = False
    again: int = 0
    needed: bool = False

    def is_clear_loss(self, rate: float) -> bool:
        """Return whether ``rate`` is far below what was measured before the last step."""
        return self.before is not None and rate < self.before.rate * _CLEAR_LOSS

    @property
    def expected(self) -> float:
        """Return the last rate that is known, before a step or at this limit; 0 if there is none."""
        return self.before.rate if self.before is not None else self.usual

    @property
    def falls(self) -> bool:
        """Return whether fewer are being tried, or are to be tried soon."""
        return self.fewer or (self.try_fewer and self.stopped == _NO_GAIN)

    @property
    def why(self) -> str:
        """Return why it is not greater."""
        measuring = self.needed or self.before is not None
        return self.stopped or ("the end of the job" if measuring else "no more were needed")

    @property
    def reason(self) -> int:
        """Return the number of the reason why it is not greater, for ``followed``."""
        return self._reasons.index(self.stopped) if self.stopped in self._reasons else 0

    @property
    def _reasons(self) -> tuple[str, ...]:
        return "", _CPU, _REFUSING, _FEWER, _NO_GAIN, self.ceiling


def fixed(connections: int) -> ConnectionLimit:
    """Return a limit that never changes."""
    return ConnectionLimit(connections, connections, "--connections", by_user=True)


def adaptive(most: int, ceiling: str) -> ConnectionLimit:
    """Return a limit that may grow to ``most``, which is what ``ceiling`` allows."""
    return ConnectionLimit(min(FIRST, most), most, ceiling=ceiling)


def per_host(chosen: int, connections: int, hosts: int) -> int:
    """Return how many of ``connections`` one of ``hosts`` hosts may have.

    ``chosen``: the number that the user chose, or 0.
    """
    most = chosen or (_PER_HOST_OF_MANY if hosts >= MANY_HOSTS else connections)
    return min(most, connections)


def followed(limit: ConnectionLimit, now: int, reason: int) -> ConnectionLimit:
    """Return the limit of a worker after another one has decided for all that it is ``now``."""
    now, stopped = min(now, limit.most), limit._reasons[reason]
    if (now, stopped) == (limit.now, limit.stopped):
        return limit
    wait = _PAUSE if stopped else 0
    rest = ConnectionLimit(now, limit.most, stopped, limit.ceiling, gain=limit.gain)
    return replace(rest, wait=wait, try_fewer=limit.try_fewer, needed=limit.needed)


def measured(limit: ConnectionLimit, sample: Sample) -> ConnectionLimit:
    """Return the limit that follows from ``sample``, which was measured at ``limit``."""
    if limit.by_user:
        return limit
    if limit.fewer:
        return _judge_fewer(limit, sample)
    if limit.wait:
        limit = replace(_held(limit, sample), wait=limit.wait - 1)
        if limit.fewer or limit.wait:
            return limit
        return _grow(limit, sample)
    before = limit.before
    if before is None or sample.rate > before.rate * _CLEAR_GAIN:
        return _grow(replace(limit, by_fewer=False), sample)
    tries, gains = limit.tries + 1, limit.gains + (sample.rate > before.rate * limit.gain)
    if tries < _TRIES:
        return replace(limit, tries=tries, gains=gains)
    if gains == tries:
        return _grow(replace(limit, by_fewer=False), sample)
    lost = sample.rate < before.rate * _LOSS
    back = _stop_growing(limit, limit.came_from, _FEWER if limit.by_fewer else _NO_GAIN)
    back = replace(back, try_fewer=limit.try_fewer or lost)
    if not lost:
        return back
    # A reason to try fewer soon, and fewer more the next time.
    return replace(back, usual=before.rate, held=_BEFORE_FEWER - 2, careful=True, again=1)


def _held(limit: ConnectionLimit, sample: Sample) -> ConnectionLimit:
    """Return the limit after ``sample`` while it does not grow: fewer may be tried."""
    held, usual = limit.held + 1, limit.usual or sample.rate
    fallen = sample.rate < usual * _FALLEN
    falls = limit.fallen + 1 if fallen else 0
    if falls >= _TRIES:
        return _fewer(replace(limit, as_fast=True), Sample(sample.rate, sample.busy))
    if not fallen:
        usual += (sample.rate - usual) / min(max(held, 1), _WEIGHT)
    limit = replace(limit, held=held, usual=usual, fallen=falls)
    if limit.try_fewer and held >= _BEFORE_FEWER and not falls and sample.busy <= _IDLE_AGAIN:
        return _fewer(limit, Sample(usual, sample.busy))
    return limit


def _fewer(limit: ConnectionLimit, before: Sample) -> ConnectionLimit:
    """Return the next smaller limit, to be tried; ``before``: what is measured now."""
    fewer = max(limit.now // 2, _FEWEST_AS_FAST if limit.as_fast else 1)
    if fewer >= limit.now:
        return replace(limit, try_fewer=False, fewer=False, as_fast=False, fallen=0, usual=before.rate)
    return replace(
        limit, now=fewer, came_from=limit.now, before=before, fewer=True, tries=0, gains=0, fallen=0
    )


def _judge_fewer(limit: ConnectionLimit, sample: Sample) -> ConnectionLimit:
    """Return the limit after ``sample`` was measured with fewer requests in flight."""
    before = limit.before or sample
    gained = sample.rate > before.rate * limit.gain
    tries, gains = limit.tries + 1, limit.gains + gained
    as_fast = limit.as_fast and sample.rate >= before.rate * _AS_FAST
    clear = sample.rate > before.rate * (_CLEAR_GAIN_OF_FEWER if limit.careful else _CLEAR_GAIN)
    # Where fewer are to be expected to be faster, one measurement may have had what was slow before.
    open_ = gained or as_fast or (limit.careful and sample.rate > before.rate * _LOSS)
    if not clear and open_ and tries < _TRIES:
        return replace(limit, tries=tries, gains=gains)
    if gained or as_fast:
        kept = replace(
            limit,
            stopped=_FEWER,
            by_fewer=True,
            careful=True,
            again=0,
            as_fast=limit.as_fast and not gained,
        )
        rate = before.rate if not gained else sample.rate
        return _fewer(kept, Sample(rate, sample.busy))
    if sample.rate >= before.rate * _AS_FAST and limit.now > 1:
        # Nothing is lost so far, and what fewer bring may begin farther below.
        return replace(limit, now=limit.now // 2, tries=0, gains=0)
    return replace(
        limit,
        now=limit.came_from,
        before=None,
        fewer=False,
        as_fast=False,
        try_fewer=limit.again > 0,
        again=max(limit.again - 1, 0),
        tries=0,
        gains=0,
        held=-_BEFORE_FEWER if limit.again else 0,
        usual=0.0,
        wait=max(limit.wait, _PAUSE),
    )


def spread(limit: ConnectionLimit) -> ConnectionLimit:
    """Return the limit from where the source turns out to be a list over many hosts."""
    if limit.by_user:
        return limit
    now = min(max(limit.now, _FIRST_OF_MANY), limit.most)
    return replace(limit, now=now, before=None, tries=0, gains=0, gain=_GAIN_OF_MANY, usual=0.0, held=0)


def refused(limit: ConnectionLimit) -> ConnectionLimit:
    """Return the limit after a server that had answered refused many requests."""
    if limit.by_user or limit.now <= _FEWEST:
        return limit
    fewer = _stop_growing(limit, max(limit.now // 2, _FEWEST), _REFUSING)
    return replace(fewer, try_fewer=False)


def _grow(limit: ConnectionLimit, sample: Sample) -> ConnectionLimit:
    if limit.now >= limit.most:
        # It has come here because each step was faster.
        try_fewer = limit.try_fewer and not limit.came_from
        limit = replace(limit, stopped=limit.ceiling, before=None, tries=0, gains=0, try_fewer=try_fewer)
        return _held(limit, sample)
    best = max(limit.best, sample.rate)
    if sample.busy > (_IDLE_AGAIN if limit.stopped == _CPU else _BUSY):
        return _held(replace(limit, stopped=_CPU, before=None, best=best, tries=0, gains=0), sample)
    now = min(limit.now * (4 if sample.busy < _IDLE and not limit.careful else 2), limit.most)
    before = sample._replace(rate=best)
    return replace(
        limit,
        now=now,
        stopped="",
        before=before,
        came_from=limit.now,
        best=0.0,
        tries=0,
        gains=0,
        usual=0.0,
        held=0,
        fallen=0,
    )


def _stop_growing(limit: ConnectionLimit, now: int, why: str) -> ConnectionLimit:
    return replace(
        limit,
        now=now,
        stopped=why,
        before=None,
        best=0.0,
        tries=0,
        gains=0,
        wait=limit.pause,
        pause=min(limit.pause * 2, _MAX_PAUSE),
        usual=0.0,
        held=0,
        fallen=0,
        fewer=False,
        as_fast=False,
    )


class Counters(NamedTuple):
    """What a worker has counted, or several ``workers`` that have the same limit.

    ``now``: the time; ``cpu``: seconds in which it had the CPU or waited for it, the mean of all;
    ``finished``: files that were received or have failed; ``refused``: requests that a server refused which
    had answered others.
    """

    now: float
    cpu: float
    finished: float
    refused: float
    workers: int = 1


class Climb:
    """The measurements of a worker, from which its limit follows. ``of_many_hosts``: so it was observed.

    A measurement lasts until each connection has, on average, finished a request, or as many as it finishes
    together. So does the pause after a change of the limit, in which nothing is measured.
    """

    def __init__(self, limit: ConnectionLimit, start: Counters) -> None:
        self.limit = limit
        self._start = start
        self._refused = start
        self._changed_at = -_DRAINING
        self._full_since = start.now
        self._settling = self._depth_changed = self._does_more = False
        self.of_many_hosts = False

    def depth_changed(self, *, faster: bool) -> None:
        """Discard the current measurement: the depth of the pipeline has changed.

        ``faster``: since some connections have shown that the servers do more at once. Then the limit grows
        with the next observation.
        """
        self._depth_changed, self._does_more = True, faster

    def joined(self, counted: Counters) -> None:
        """Begin the current measurement anew: another worker counts from now on."""
        self._start = counted

    def follow(self, counted: Counters, now: int, reason: int, *, full: bool) -> bool:
        """Take over what another worker has decided; return whether the limit has changed."""
        before = self.limit.now
        self.limit = followed(self.limit, now, reason)
        self._need(counted, full)
        self._start, self._settling = counted, True
        return self.limit.now != before

    def _need(self, counted: Counters, full: bool) -> None:
        """Note whether more could have been in flight, for as long as a measurement takes."""
        if not full:
            self._full_since = counted.now
        elif counted.now - self._full_since >= _SECONDS and not self.limit.needed:
            self.limit = replace(self.limit, needed=True)

    def observe(
        self,
        counted: Counters,
        *,
        full: bool,
        many_hosts: bool,
        together: int = 1,
        steady: bool = False,
        deepening: bool = False,
        draining: bool = False,
    ) -> bool:
        """Take ``counted`` into account; return whether the limit has changed.

        ``full``: as many requests are in flight as the limit allows, and others wait. ``together``: files
        that a connection finishes at a time, or, if ``steady``, has in flight, while it finishes one after
        the other. ``deepening``: the depth of the pipeline is being measured. ``draining``: more requests
        are in flight than the limit allows.
        """
        self._need(counted, full)
        limit, in_bursts, full = self.limit, together > 1 and not steady, full and not deepening
        if many_hosts and not self.of_many_hosts:
            self.of_many_hosts = True
            self.limit = spread(limit)
        elif not many_hosts and counted.refused - self._refused.refused >= max(
            _FEWEST, limit.now * counted.workers // 4
        ):
            self._refused = counted
            self.limit = refused(limit)
        elif self._depth_changed:
            self._depth_changed, self._settling = False, True
            if self._does_more and full:
                self.limit = self._grown_unmeasured(counted)
            self._start = counted
        elif full and draining and counted.now - self._changed_at < _DRAINING:
            self._start, self._settling = counted, True
        elif full:
            self.limit = self._measured(counted, together, in_bursts)
        if counted.now - self._refused.now > _REFUSED_WITHIN:
            self._refused = counted
        changed = self.limit.now != limit.now
        if changed:
            self._changed_at = counted.now
        if changed or not full:
            self._start = counted
            # Files that finish together were requested long before: at a smaller depth, for example.
            self._settling = changed or in_bursts
        return changed

    def _grown_unmeasured(self, counted: Counters) -> ConnectionLimit:
        start = self._start
        busy = (counted.cpu - start.cpu) / max(counted.now - start.now, _SHORTEST)
        return replace(_grow(self.limit, Sample(0.0, busy)), before=None)

    def _measured(self, counted: Counters, together: int, in_bursts: bool) -> ConnectionLimit:
        limit, start, settling = self.limit, self._start, self._settling
        finished, elapsed = counted.finished - start.finished, counted.now - start.now
        fewest = max(limit.now * counted.workers, _FILES if limit.fewer else 0)
        many = max(
            limit.now * counted.workers * together * (_TIMES if in_bursts and not settling else 1), fewest
        )
        long = _LONG
        if limit.expected and not in_bursts:
            requests = (
                (limit.came_from if limit.before is not None else limit.now) * counted.workers * together
            )
            long = min(max(requests / limit.expected * _LATENCIES, _SHORT), _LONG)
        lost = elapsed >= long and limit.is_clear_loss(finished / elapsed)
        if settling or not in_bursts:
            fewest = min(fewest, _FILES)
        enough = finished >= many or (elapsed >= long and finished >= fewest)
        if not (enough or lost) or (elapsed < _SECONDS and not settling):
            return limit
        self._start, self._settling = counted, False
        if settling and not lost:
            return limit
        return measured(limit, Sample(finished / elapsed, (counted.cpu - start.cpu) / elapsed))
