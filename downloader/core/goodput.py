"""Measure the goodput of an origin over spans that are long enough to be compared.

A span that is shorter than a response takes says nothing about the depth of the pipeline: what arrives
in it was requested before, and of the first requests only those that are answered fast. So a span lasts
for as many responses as requests are in flight, times ``_SPAN``. By Little's law (L = λW; John D. C.
Little, 1961) that takes as many mean latencies, whatever their distribution is, and no latency has to be
known. After a start or a step, the responses of one mean latency are not measured at all: until then the
requests in flight are not yet what the new depth makes of them.
"""

from __future__ import annotations

from typing import Final

from downloader.core.pipeline_depth import Sample

__all__ = ["Meter"]

_SPAN: Final = 2
# The minimum duration (seconds) and number of responses of a measurement, and the duration that suffices
# without that number.
_EPOCH, _SAMPLES, _LONG_EPOCH = 0.05, 200, 0.2
_FEWEST: Final = 16  # responses, in any case


class Meter:
    """A measurement of the responses of one origin, one span after another."""

    __slots__ = ("_due", "_lacking", "_responses", "_settling", "_since", "_storing", "_taken", "_worked")

    def __init__(self) -> None:
        self._since = self._worked = self._storing = 0.0
        self._responses = self._taken = 0
        self.restart()

    @property
    def total(self) -> int:
        """Return the number of responses so far, measured or not."""
        return self._taken + self._responses

    def restart(self) -> None:
        """Discard the current measurement, and do not measure the responses of the next mean latency."""
        self._settling = True
        self._begin()

    def _begin(self) -> None:
        self._taken += self._responses
        self._responses, self._due, self._lacking = 0, _FEWEST, 0

    def lack(self, requests: int) -> None:
        """Record that ``requests`` more could have been sent, but there was nothing to request."""
        self._lacking += requests

    def record(self, now: float, count: int) -> bool:
        """Record ``count`` more responses; return whether ``sample`` is to be called."""
        self._responses += count
        if self._responses < self._due:
            return False
        if self._settling:
            return True
        elapsed = now - self._since
        return elapsed >= _EPOCH and (self._responses >= _SAMPLES or elapsed >= _LONG_EPOCH)

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
        if responses < wanted:
            self._due = wanted
            return None
        sample = None
        if not settling and self._lacking * 2 <= responses:
            elapsed = now - self._since
            busy = min((worked - self._worked) / elapsed, 1.0)
            debt = (responses * per_file - (storing - self._storing)) / elapsed
            sample = Sample(responses / elapsed, responses, busy, debt)
        self._settling = False
        self._since, self._worked, self._storing = now, worked, storing
        self._begin()
        return sample
