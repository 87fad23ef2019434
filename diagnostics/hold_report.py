"""Format what held the hubs of a command: as lines while it runs, as a table at its end."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

__all__ = ["Held", "News", "Seen", "headline", "table"]

_ROWS = 20
_LONG = 1.0  # seconds after which a hold is reported before it ends
_SOURCE = 60  # characters of a source line
_LIBRARY = re.compile(
    r".*?/(?:site-packages|dist-packages|lib(?:64)?/python\d[\d.]*)/(?!.*/site-packages/)"
)

Spot = tuple[str, int, str, str]  # file, line (0: it varies), function, kind of code


@dataclass(frozen=True)
class Held:
    """What held a hub at one place.

    ``stack``: innermost frame first; ``line``: where the innermost frame was seen most; in seconds:
    ``seconds`` in all, ``longest``, ``own`` (without the time in which the machine had no CPU for it), and
    ``cpu``.
    """

    stack: tuple[Spot, ...]
    line: int
    count: int
    seconds: float
    longest: float
    own: float
    cpu: float

    def and_(self, other: Held | None, sign: int = 1) -> Held:
        """Return the sum with ``other``, of the same place; the difference where ``sign`` is -1."""
        if other is None:
            return self
        return replace(
            self,
            count=self.count + sign * other.count,
            seconds=self.seconds + sign * other.seconds,
            longest=max(self.longest, other.longest),
            own=self.own + sign * other.own,
            cpu=self.cpu + sign * other.cpu,
        )

    @property
    def doing(self) -> str:
        """Return what it did for most of the time: ``computing`` or ``waiting``."""
        return "computing" if self.cpu > self.own / 2 else "waiting"

    @property
    def where(self) -> str:
        """Return the innermost frame."""
        return self.spots()[0] if self.stack else "many places"

    @property
    def caller(self) -> str:
        """Return the innermost frame of the user's own code; "" if that is the innermost of all, or
        none."""
        own = [number for number, spot in enumerate(self.stack) if spot[3] == "user"]
        return self.spots()[own[0]] if own and own[0] else ""

    def spots(self) -> list[str]:
        """Return all frames, innermost first."""
        return [_spot(file, line or self.line, function) for file, line, function, _ in self.stack]


@dataclass(frozen=True)
class Seen:
    """What was seen in one process.

    ``held``: all holds that have ended; ``lasting``: what holds a hub now; ``trouble``: an error of the
    watching itself.
    """

    pid: int
    held: list[Held]
    lasting: list[Held]
    trouble: str = ""


class News:
    """Formats what has not been reported yet."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, tuple[Spot, ...]], Held] = {}
        self._so_far: dict[str, float] = {}

    def line(self, seen: Mapping[str, Seen], verbose: bool) -> str:
        """Return what is new in ``seen``: the worst hold, and a count of the rest; "" if nothing is."""
        new = sorted(self._ended(seen), key=lambda pair: -pair[1].seconds)
        if new:
            pid, held = new[0]
            times = f"{held.count} times, {held.seconds:.2f} s in all," if held.count > 1 else ""
            much = times or f"{held.seconds:.2f} s"
            rest = len(new) - 1
            more = f" (and at {rest} other place{'s' if rest > 1 else ''})" if rest else ""
            return f"pid {pid}: hub held {much} {_place(held, verbose)}{more}"
        for name, each in seen.items():
            for held in each.lasting:
                if held.seconds >= max(_LONG, 2 * self._so_far.get(name, 0.0)):
                    self._so_far[name] = held.seconds
                    return f"pid {each.pid}: hub held {held.seconds:.2f} s so far {_place(held, verbose)}"
            if not each.lasting:
                self._so_far.pop(name, None)
        return ""

    def _ended(self, seen: Mapping[str, Seen]) -> Iterator[tuple[int, Held]]:
        for name, each in seen.items():
            for held in each.held:
                before = self._said.get((name, held.stack))
                self._said[name, held.stack] = held
                if before is None or held.count > before.count:
                    yield each.pid, held.and_(before, -1)


def headline(seen: list[Seen], python: bool, max_block: float, missed: str = "") -> str:
    """Return the summary in one line, or why there is none.

    ``python``: any Python was seen; ``missed``: which one could not be watched, and why.
    """
    if not seen and missed:
        return f"no gevent process was watched: {missed}"
    if not seen and not python:
        return "no gevent process was seen: no Python was seen among its processes"
    if not seen:
        return "no gevent process was seen: Python ran, but no hub of gevent in it"
    longer = f"longer than {max_block * 1000:g} ms"
    processes = f"{len(seen)} gevent process{'es' if len(seen) > 1 else ''}"
    total = _folded(seen)
    text = f"nothing held a hub {longer}; {processes}"
    if total:
        count, seconds = sum(held.count for held in total), sum(held.seconds for held in total)
        times = "once" if count == 1 else f"{count} times"
        text = f"a hub was held {times} {longer}, {seconds:.2f} s in all; {processes}"
    for each in seen:
        if each.trouble:
            text += f"; watching pid {each.pid} failed: {each.trouble}"
    return f"{text}; {missed}" if missed else text


def table(seen: list[Seen], verbose: bool) -> Table:
    """Return a row for each place, longest first; with the whole stack if ``verbose``."""
    rows = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("times", "total", "longest"):
        rows.add_column(name, justify="right", no_wrap=True)
    rows.add_column("while")
    rows.add_column("held at", overflow="fold")
    if not verbose:
        rows.add_column("called from", overflow="fold")
    for held in _folded(seen)[: None if verbose else _ROWS]:
        where = ["\n".join(held.spots())] if verbose else [held.where, held.caller]
        rows.add_row(
            str(held.count),
            f"{held.seconds:.2f} s",
            f"{held.longest:.2f} s",
            held.doing,
            *map(Text, where),
        )
    return rows


def _folded(seen: Iterable[Seen]) -> list[Held]:
    places: dict[tuple[Spot, ...], Held] = {}
    for each in seen:
        for held in (*each.held, *each.lasting):
            places[held.stack] = held.and_(places.get(held.stack))
    return sorted(places.values(), key=lambda held: -held.seconds)


def _place(held: Held, verbose: bool) -> str:
    if verbose:
        return f"({held.doing}) at {' < '.join(held.spots()) or held.where}"
    called = f", called from {held.caller}" if held.caller else ""
    return f"({held.doing}) at {held.where}{called}"


def _spot(file: str, line: int, function: str) -> str:
    source = linecache.getline(file, line).strip()[:_SOURCE]
    return f"{_shown(file)}:{line} in {function}{': ' if source else ''}{source}"


def _shown(file: str) -> str:
    """Return a path as short as it is unambiguous."""
    try:
        here = os.getcwd() + os.sep
    except OSError:
        return _LIBRARY.sub("", file)  # the current directory was removed
    short = file.removeprefix(here) if file.startswith(here) else file
    return _LIBRARY.sub("", short)
