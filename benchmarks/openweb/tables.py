"""Make the table of the open web's cells: what a client stored counts there, not only how fast."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.cells import Cell, of_group
from benchmarks.markdown import figure, markdown
from benchmarks.results import Results, Run

__all__ = ["row", "table"]

_HEADER = (
    "cell, client", "s", "least–most", "files/s", "CPU s", "peak MB", "stored", "DNS queries", "a name",
)  # fmt: skip


def table(results: Results) -> str:
    """Return the medians of all clients in all cells; empty where nothing was measured."""
    rows = []
    for cell in of_group("web"):
        for name in results.clients(cell.name, cell.clients):
            rows.append(row(results, cell, name))
    return markdown(_HEADER, rows) if rows else ""


def row(results: Results, cell: Cell, client: str) -> list[str]:
    """Return the line of one client in one cell."""
    return [f"{cell.title}: `{client}`", *_figures(results.of(cell.name, client))]


def _figures(runs: Sequence[Run]) -> list[str]:
    """Return all columns but the first. A file that is wrong, or an end before all was tried, leaves a dash
    in place of the time; files that are missing do not: the table says how many."""
    stored = _stored(runs)
    good = [run for run in runs if run.seconds is not None and not run.wrong and not run.failure]
    seconds = [run.seconds for run in good if run.seconds is not None]
    if not seconds:
        return [*["—"] * 5, stored, "—", "—"]
    middle = statistics.median(seconds)
    return [
        f"{middle:.1f}",
        f"{min(seconds):.1f}–{max(seconds):.1f}",
        figure(good[0].files / middle),
        f"{statistics.median(run.cpu_seconds for run in good):.1f}",
        f"{max(run.memory_mb for run in good):,.0f}",
        stored,
        f"{statistics.median(run.said['dns_queries'] for run in good):,.0f}",
        f"{max(run.said['dns_most_per_name'] for run in good):,.0f}",
    ]


def _stored(runs: Sequence[Run]) -> str:
    wrong, hung = sum(run.wrong for run in runs), sum(run.hung for run in runs)
    right = sum(int(run.said.get("right", 0)) for run in runs)
    obtainable = right + sum(int(run.said.get("missing", 0)) for run in runs)
    parts = [f"all {right:,}" if right == obtainable else f"{right:,} of {obtainable:,}"]
    parts += [f"{wrong:,} wrong"] if wrong else []
    parts += [f"{failed} failed"] if (failed := sum(bool(run.failure) for run in runs)) else []
    parts += [f"{hung} hung"] if hung else []
    return ", ".join(parts)
