"""Measure the goodput of an origin over spans that are long enough to be compared.

A span that is shorter than a response takes says nothing about the depth of the pipeline: what arrives
in it was requested before, and of the first requests only those that are answered fast. So a span lasts
for as many responses as requests are in flight, times ``_SPAN``. By Little's law (L = λW; John D. C.
Little, 1961) that takes as many mean latencies, whatever their distribution is, and no latency has to be
known. After a start or a step, the responses of one mean latency are not measured at all: until then the
requests in flight are not yet what the new depth makes of them.

Where a server works on one request of a connection after the other, a greater depth makes a mean latency as
many times longer, and a job may end before that is measured. So after a step both last for ``_PATIENCE``
mean latencies of the depth before at most: by then a server that works on all requests at once has answered
the first ones, the slow ones among them, and its rate is a multiple of what it was.
"""

from __future__ import annotations

import math
from typing import Final

from downloader.core.pipeline_depth import Sample

__all__ = ["Meter"]

_SPAN: Final = 2
# Mean latencies from before a step that a measurement after it may last: after the first step, and after
# others. Of 64 responses in order the slowest is awaited.
_PATIENCE: Final = (4, 10)
# The minimum duration (seconds) and number of responses of a measurement, and the duration that suffices
# without that number.
_EPOCH, _SAMPLES, _LONG_EPOCH = 0.05, 200, 0.2
_FEWEST: Final = 16  # responses, in any case


class Meter:
    """A measurement of the responses of one origin, one span after another."""

    __slots__ = (
        *("_due", "_lacking", "_latency", "_longest", "_responses"),
        *("_settling", "_since", "_storing", "_taken", "_worked"),
    )

    def __init__(self) -> None:
        self._since = self._worked = self._storing = 0.0
        self._latency = math.inf  # the mean one of the last measurement
        self._responses = self._taken = 0
        self.restart()

    @property
    def total(self) -> int:
        """Return the number of responses so far, measured or not."""
        return self._taken + self._responses

    def restart(self) -> None:
        """Discard the current measurement, and do not measure the responses of the next mean latency."""
        self._settling = True
        self._longest = math.inf  # seconds that a measurement may last, and what is before it
        self._begin()

    def stepped(self, depth: int) -> None:
        """Do the same after the ``depth`` has changed, and measure for some mean latencies before it."""
        self.restart()
        self._longest = _PATIENCE[depth > 1] * self._latency

    def _begin(self) -> None:
        self._taken += self._responses
        self._responses, self._due, self._lacking = 0, _FEWEST, 0

    def record_starvation(self, requests: int) -> None:
        """Record that ``requests`` more could have been sent, but there was nothing to request."""
        self._lacking += requests

    def record(self, now: float, count: int) -> bool:
        """Record ``count`` more responses; return whether ``sample`` is to be called."""
        if self._settling and not self._responses:
            self._since = now
        self._responses += count
        if self._responses < self._due and not self._is_long(now):
            return False
        if self._settling:
            return True
        elapsed = now - self._since
        return elapsed >= _EPOCH and (self._responses >= _SAMPLES or elapsed >= _LONG_EPOCH)

    def _is_long(self, now: float) -> bool:
        return now - self._since >= self._longest and self._responses >= _FEWEST

    def sample(
        self, now: float, in_flight: int, worked: float, storing: float, per_file: float
    ) -> Sample | None:
        """Return the measurement that ends ``now``, or None.

        None: it has to go on, or for more than half of the requests there was nothing to request, so that
        the source was measured.

        ``in_flight``: requests without a response; ``worked``: CPU seconds of the process so far, of which
        ``storing`` were spent on storing, ``per_file`` seconds for each file.
        """
        responses, settling = self._responses, self._settling
        wanted = in_flight if settling else in_flight * _SPAN
        if responses < wanted and not self._is_long(now):
            self._due = wanted
            return None
        sample = None
        if not settling and self._lacking * 2 <= responses:
            elapsed = now - self._since
            self._latency = in_flight * elapsed / responses
            busy = min((worked - self._worked) / elapsed, 1.0)
            debt = (responses * per_file - (storing - self._storing)) / elapsed
            sample = Sample(responses / elapsed, responses, busy, debt)
        self._settling = False
        self._since, self._worked, self._storing = now, worked, storing
        self._begin()
        return sample
