"""Show progress and log lines on stderr: a bar on a terminal that can draw it, else a line every 10 s.

Drawn from the supervisor's loop; no thread of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import monotonic
from typing import IO, TYPE_CHECKING, NamedTuple

from downloader.config.config import Config
from downloader.core.naming import one_line, printable
from downloader.core.progress_estimate import Rates, seconds_left
from downloader.core.redact import redact
from downloader.core.units import show_count, show_size, show_time
from downloader.messages import Receiving, Tally

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

__all__ = ["Progress", "Totals"]

_BAR_EVERY = 0.2
_LINE_EVERY = 10.0
_OBSERVED_EVERY = 1.0  # workers report as often
_CANNOT_DRAW = ("dumb", "unknown")  # names of terminals that cannot move the cursor
_LEVELS = {"debug": 2, "info": 1, "warning": 0, "error": -1}


class Totals(NamedTuple):
    """The state of a run: what is finished, the bodies that arrive, and how many ``files`` wait for how
    many ``hosts`` that pause or do not answer."""

    tally: Tally
    receiving: Receiving = Receiving()
    files: int = 0
    hosts: int = 0


class Progress:
    """The progress display of a run."""

    def __init__(self, config: Config, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._verbose = -1 if config.quiet else config.verbose
        self._json = config.log_json
        self._secrets = config.secrets
        kind = config.progress
        if kind == "auto":
            kind = "bar" if self._stream.isatty() and not config.log_json else "plain"
        if kind == "bar" and os.environ.get("TERM", "").lower() in _CANNOT_DRAW:
            kind = "plain"
        self._kind = "none" if config.quiet else kind
        self._began = self._last = self._observed = monotonic()
        self._before = 0
        self._listed = 0
        self._position = -1.0
        self._rates = Rates(self._began)
        self.note = ""  # about the run, behind the numbers
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def begin(self, listed: int, before: Tally) -> None:
        """Start where earlier runs stopped.

        They listed ``listed`` items; ``before`` counts those that they finished.
        """
        self._listed = listed
        self._before = before.stored
        self._began = self._last = self._observed = monotonic()
        self._rates = Rates(self._began)

    def listed(self, count: int, position: float) -> None:
        """Add ``count`` listed items; ``position`` is the position in the source, 0 to 1, or -1."""
        self._listed += count
        self._position = position

    def log(self, level: str, text: str) -> None:
        """Write one line, if -v or -q permit it."""
        if _LEVELS.get(level, 0) > self._verbose:
            return
        text = redact(text, self._secrets)
        if level != "debug":  # a traceback
            text = one_line(text)
        if self._json:
            self._write_json({"level": level, "message": text})
            return
        text = printable(text)
        if self._bar is not None:
            self._bar.console.print(
                f"downloader: {text}", markup=False, highlight=False, emoji=False, soft_wrap=True
            )
        else:
            self._print(f"downloader: {text}")

    def update(self, count: Callable[[], Totals], total_known: bool) -> None:
        """Draw if it is time to; ``count`` is called only then."""
        now = monotonic()
        every = _BAR_EVERY if self._kind == "bar" else _LINE_EVERY
        is_due = now - self._last >= every
        is_observed = now - self._observed < _OBSERVED_EVERY
        if self._kind == "none" or (is_observed and not is_due):
            return
        totals = count()
        if not is_observed:
            self._observed = now
            self._rates.observe(now, totals.tally.settled, totals.tally.bytes + totals.receiving.bytes)
        if not is_due:
            return
        self._last = now
        waiting = self.note
        if hosts := totals.hosts:
            what = "" if self._kind == "bar" else " files"  # the bar has little room
            waiting = (
                f"{show_count(totals.files)}{what} wait for {show_count(hosts)} host{'s' * (hosts > 1)}"
            )
        if self._kind == "bar":
            self._draw(now, totals, waiting, total_known)
        else:
            self._line(now, totals, waiting, total_known)

    def _line(self, now: float, totals: Totals, waiting: str, total_known: bool) -> None:
        tally = totals.tally
        settled = tally.settled + self._before
        share = self._share(settled, total_known)
        if self._json:
            self._write_json(
                {
                    "level": "progress",
                    "settled": settled,
                    "listed": self._listed,
                    "failed": tally.failed,
                    "bytes": tally.bytes,
                    "files_per_second": round(self._rates.files, 1),
                }
            )
            return
        parts = [f"{show_count(settled)} of {show_count(self._listed)}{'' if total_known else '+'} files"]
        if share is not None:
            parts.append(f"{int(share * 100)}%")  # 100% when all are finished, not before
        rates = self._rates
        parts += [f"{rates.files:,.0f} files/s", f"{show_size(int(rates.bytes))}/s"]
        parts.append(f"{tally.failed} failed")
        if left := self._left(now, totals, share):
            parts.append(left)
        if waiting:
            parts.append(waiting)
        self._print(f"downloader: {', '.join(parts)}")

    def _share(self, settled: int, total_known: bool) -> float | None:
        if total_known and self._listed:
            return settled / self._listed
        if self._position > 0 and self._listed:
            return self._position * settled / self._listed
        return None

    def _left(self, now: float, totals: Totals, share: float | None) -> str:
        """Return how long the rest may take, "" where nothing says so."""
        if share is None or share >= 1:
            return ""
        # By the speed of this run alone: earlier runs took other time.
        average = totals.tally.settled / max(now - self._began, 1e-6)
        settled = totals.tally.settled + self._before
        files = settled / share - settled if share else self._listed
        seconds = seconds_left(self._rates, average, files, totals.receiving)
        return "" if seconds is None else f"{show_time(seconds)} left"

    def _draw(self, now: float, totals: Totals, waiting: str, total_known: bool) -> None:
        if self._bar is None:
            from downloader.reporting.bar import make_bar  # rich is slow to import

            self._bar, self._task = make_bar(self._stream)
        assert self._task is not None
        tally = totals.tally
        settled = tally.settled + self._before
        share = self._share(settled, total_known)
        self._bar.update(
            self._task,
            completed=settled,
            total=round(settled / share) if share else None,
            failed=tally.failed,
            waiting=waiting,
            rate=f"{self._rates.files:,.0f} files/s",
            speed=f"{show_size(int(self._rates.bytes))}/s",
            left=self._left(now, totals, share),
        )
        self._bar.refresh()

    def _write_json(self, record: dict[str, object]) -> None:
        self._print(json.dumps(record))  # in ASCII: standard error may accept nothing else

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def end(self) -> None:
        """Remove the bar; the report follows."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
