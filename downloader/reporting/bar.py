"""Make the progress bar of a terminal, which leaves out what there is no room for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.table import Column, Table
from rich.text import Text

__all__ = ["make_bar"]

_SHORTEST = 10  # cells of the bar itself


class _Percent(ProgressColumn):
    def render(self, task: Task) -> Text:
        # 100% when all are finished, not before.
        return Text("" if task.total is None else f"{int(task.percentage):>3}%")


class _Fitting(Progress):
    """A bar without the first of ``optional``, columns, of which it would be too short."""

    optional: tuple[ProgressColumn, ...] = ()

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        tasks, every = list(tasks), self.columns
        if not tasks:
            return super().make_tasks_table(tasks)
        widths = {column: self._width(column, tasks) for column in every}
        for column in self.optional:
            if sum(widths.values()) <= self.console.width:
                break
            del widths[column]
        self.columns = tuple(widths)
        try:
            return super().make_tasks_table(tasks)
        finally:
            self.columns = every

    def _width(self, column: str | ProgressColumn, tasks: list[Task]) -> int:
        if isinstance(column, (str, BarColumn)):
            return _SHORTEST
        options = self.console.options
        return 1 + max(Measurement.get(self.console, options, column(each)).maximum for each in tasks)


def make_bar(stream: IO[str]) -> tuple[Progress, TaskID]:
    """Return a bar that is drawn on ``stream``, and its task.

    The fields of the task are ``rate``, ``speed``, ``failed``, ``waiting`` and ``left``.
    """
    rate, left, speed = (
        TextColumn(f"{{task.fields[{name}]}}", table_column=Column(no_wrap=True))
        for name in ("rate", "left", "speed")
    )
    # auto_refresh would draw from a thread; the supervisor must have one thread when it forks.
    bar = _Fitting(
        BarColumn(),
        _Percent(table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        rate,
        speed,
        TextColumn("{task.fields[failed]} failed"),
        TextColumn("{task.fields[waiting]}"),
        left,
        console=Console(file=stream),
        auto_refresh=False,
        transient=True,
        # A worker that is forked later must not inherit a stand-in for standard error.
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.optional = (speed, left, rate)
    bar.start()
    return bar, bar.add_task("files", total=None, failed=0, rate="", speed="", waiting="", left="")
