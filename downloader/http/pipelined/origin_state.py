"""What the wire lane knows of one origin, and what it measures of it."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from dataclasses import dataclass  # noqa: E402
from time import thread_time  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from downloader.core import pipeline_depth as depths  # noqa: E402
from downloader.http.session import Origin  # noqa: E402

if TYPE_CHECKING:
    from downloader.http.pipelined.connection import Pipeline

__all__ = ["Route", "Stored"]

# A measurement of goodput: so long at least (seconds), and so many answers.
_EPOCH, _SAMPLES = 0.05, 400
# After so many requests Apache and nginx close a connection, if they were not told otherwise.
_USUAL_LIMITS = (100, 1000)


@dataclass(slots=True)
class Stored:
    """What the lane has stored so far: ``files``, and the ``seconds`` of CPU that it took."""

    files: int = 0
    seconds: float = 0.0


class Route:
    """What the lane knows of one origin: the template, idle connections, how deep, and whether it fits.

    ``limit``: after how many requests the server closes a connection, 0 where that is not known.
    ``single``: it gave an answer that nobody had asked for; each connection is used once. ``trusted``: it
    has answered several requests in step, so a new connection need not begin with a single one.
    """

    __slots__ = (
        "_answers",
        "_broke_at",
        "_head",
        "_joint",
        "_since",
        "_stored",
        "_storing",
        "_tail",
        "_waited",
        "_worked",
        "depth",
        "idle",
        "limit",
        "misfits",
        "origin",
        "shapes",
        "single",
        "trusted",
    )

    def __init__(
        self, origin: Origin, template: tuple[bytes, bytes], depth: depths.Depth, stored: Stored
    ) -> None:
        self.origin = origin
        self._stored = stored
        self._head, self._tail = template
        self._joint = self._tail + self._head
        self.depth = depth
        self.idle: list[Pipeline] = []
        self.misfits = self.limit = self._broke_at = 0
        self.single = self.trusted = False
        self.shapes: dict[tuple[bytes, ...], Any] = {}
        self._since = self._worked = self._waited = self._storing = 0.0
        self._answers = 0

    def requests(self, targets: list[bytes]) -> bytes:
        """The bytes that ask for ``targets``."""
        return self._head + self._joint.join(targets) + self._tail

    def answered(self, now: float, count: int, latency: float) -> None:
        """``count`` more were answered, the slowest within ``latency`` seconds."""
        self._answers += count
        self._waited += latency * count
        elapsed = now - self._since
        if elapsed < _EPOCH or (self._answers < _SAMPLES and elapsed < 10 * _EPOCH):
            return
        answers, stored, worked = self._answers, self._stored, thread_time()
        if elapsed < 20 * _EPOCH:  # longer: there was nothing to do
            busy = min((worked - self._worked) / elapsed, 1.0)
            owed = answers * stored.seconds / stored.files if stored.files else 0.0
            debt = (owed - (stored.seconds - self._storing)) / elapsed
            sample = depths.Sample(answers / elapsed, self._waited / answers, busy, debt)
            self.depth = depths.measured(self.depth, sample)
        self._since, self._worked, self._storing = now, worked, stored.seconds
        self._answers, self._waited = 0, 0.0

    def starved(self) -> None:
        """There was less to ask for than could have been asked: what is being measured says nothing."""
        self._since = 0.0

    def broke(self) -> None:
        """A connection ended with requests unanswered."""
        self._begin_with_one(depths.broke(self.depth))

    def broke_at(self, served: int) -> None:
        """It ended after ``served`` answers, unannounced: twice the same is a rule."""
        if served == self._broke_at:
            self.limit = served
        self._broke_at = served

    def closes_early(self, served: int) -> None:
        """The server closed, or is about to, after ``served`` answers, in the midst of a window or with its
        last. With one answer too many before that it would look the same, so they are not believed."""
        self.broke_at(served)
        if self.limit != served:
            self.broke()

    def last(self, settled: int) -> int:
        """After which request the server may close a connection of which so many are known to be in
        step, by its limit or a usual one: a window ends before that. 0: after none that is known."""
        return self.limit or next((usual for usual in _USUAL_LIMITS if settled < usual), 0)

    def closes(self, served: int) -> None:
        """The server closed, or is about to, after ``served`` answers."""
        if self.single:
            return
        self.limit = served
        if served == 1:
            self.shut("one request a connection")

    def shut(self, why: str) -> None:
        """One request at a time from now on."""
        self._begin_with_one(depths.shut(self.depth, why))

    def large(self) -> None:
        """A large body has come."""
        self._begin_with_one(depths.large(self.depth))

    def out_of_step(self) -> None:
        """An answer came that nobody had asked for: no connection is trusted with a second one."""
        self.shut("an answer that nobody asked for")
        self.single = True
        self.limit = 1

    def _begin_with_one(self, depth: depths.Depth) -> None:
        """Go on at ``depth``; what the next connection can bear has to be seen anew."""
        self.trusted = False
        self.depth = depth
