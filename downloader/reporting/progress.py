"""Show progress and log lines on stderr: a bar on a terminal that can draw it, else a line every 10 s.

Drawn from the supervisor's loop; no thread of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import monotonic
from typing import IO, TYPE_CHECKING

from downloader.config.config import Config
from downloader.core.naming import one_line
from downloader.core.redact import redact
from downloader.core.units import show_count, show_size, show_time
from downloader.messages import Tally
from downloader.reporting.console import silence

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

__all__ = ["Progress"]

_BAR_EVERY = 0.2
_LINE_EVERY = 10.0
_CANNOT_DRAW = ("dumb", "unknown")  # names of terminals that cannot move the cursor
_LEVELS = {"debug": 2, "info": 1, "warning": 0, "error": -1}


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
        self._began = self._last = monotonic()
        self._before = 0
        self._listed = 0
        self._position = -1.0
        self._recent: tuple[float, int, int] = (self._began, 0, 0)
        self.note = ""  # about the run, behind the numbers
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def begin(self, listed: int, before: Tally) -> None:
        """Start where earlier runs stopped.

        They listed ``listed`` items; ``before`` counts those that they finished.
        """
        self._listed = listed
        self._before = before.stored
        self._began = self._last = monotonic()

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
        elif self._bar is not None:
            self._bar.console.print(
                f"downloader: {text}", markup=False, highlight=False, emoji=False, soft_wrap=True
            )
        else:
            self._print(f"downloader: {text}")

    def update(self, count: Callable[[], tuple[Tally, tuple[int, int]]], total_known: bool) -> None:
        """Draw if it is time to; ``count`` is called only then.

        It returns the counts, and how many files wait for how many hosts that pause or do not answer.
        """
        now = monotonic()
        every = _BAR_EVERY if self._kind == "bar" else _LINE_EVERY
        if self._kind == "none" or now - self._last < every:
            return
        self._last = now
        tally, (files, hosts) = count()
        waiting = self.note
        if hosts:
            what = "" if self._kind == "bar" else " files"  # the bar has little room
            waiting = f"{show_count(files)}{what} wait for {show_count(hosts)} host{'s' * (hosts > 1)}"
        if self._kind == "bar":
            self._draw(tally, waiting, total_known)
        else:
            self._line(now, tally, waiting, total_known)

    def _rates(self, now: float, tally: Tally) -> tuple[float, float]:
        """Return files and bytes a second since the last line."""
        then, files, size = self._recent
        self._recent = (now, tally.settled, tally.bytes)
        span = max(now - then, 1e-6)
        return (tally.settled - files) / span, (tally.bytes - size) / span

    def _line(self, now: float, tally: Tally, waiting: str, total_known: bool) -> None:
        rate, speed = self._rates(now, tally)
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
                    "files_per_second": round(rate, 1),
                }
            )
            return
        parts = [f"{show_count(settled)} of {show_count(self._listed)}{'' if total_known else '+'} files"]
        if share is not None:
            parts.append(f"{share:.0%}")
        parts += [f"{rate:,.0f} files/s", f"{show_size(int(speed))}/s", f"{tally.failed} failed"]
        if share and tally.settled and share < 1:
            # By the speed of this run alone: earlier runs took other time.
            left = settled / share - settled
            parts.append(f"{show_time((now - self._began) * left / tally.settled)} left")
        if waiting:
            parts.append(waiting)
        self._print(f"downloader: {', '.join(parts)}")

    def _share(self, settled: int, total_known: bool) -> float | None:
        if total_known and self._listed:
            return settled / self._listed
        if self._position > 0 and self._listed:
            return self._position * settled / self._listed
        return None

    def _draw(self, tally: Tally, waiting: str, total_known: bool) -> None:
        if self._bar is None:
            from downloader.reporting.bar import make_bar  # rich is slow to import

            self._bar, self._task = make_bar(self._stream)
        assert self._task is not None
        settled = tally.settled + self._before
        share = self._share(settled, total_known)
        self._bar.update(
            self._task,
            completed=settled,
            total=round(settled / share) if share else None,
            failed=tally.failed,
            waiting=waiting,
            speed=f"{show_size(int(tally.bytes / max(monotonic() - self._began, 1e-6)))}/s",
        )
        self._bar.refresh()

    def _write_json(self, record: dict[str, object]) -> None:
        self._print(json.dumps(record))  # in ASCII: standard error may accept nothing else

    def _print(self, line: str) -> None:
        # The stream is closed, or its disk is full: the job continues, and its exit code tells the result.
        try:
            print(line, file=self._stream, flush=True)
        except OSError:
            silence(self._stream)

    def end(self) -> None:
        """Remove the bar; the report follows."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
