"""Compare expected and measured results, as a table, JSON and Markdown, and decide whether they agree.

    python -m docker.report DIRECTORY --out DIRECTORY [--cells NAME,NAME] [--wait SECONDS]

waits in compose until every cell has written its result to DIRECTORY. It exits with 0 if each was measured
as expected, else with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from docker.cells import CELLS, Cell

__all__ = ["KEPT", "NOT_RUN", "Row", "agree", "as_markdown", "console", "rows", "show", "write"]

NOT_RUN = "not run"
KEPT = Path(__file__).resolve().parent / ".cache"  # the results of the last runs; ignored by git


@dataclass(frozen=True)
class Row:
    """A row of the table. ``agrees``: None for a cell that was not run, which is neither good nor bad."""

    cell: str
    python: str
    packages: str
    setup: str
    expected: str
    measured: str
    seconds: float | None
    diagnosis_expected: str | None
    diagnosis: str | None
    agrees: bool | None
    note: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def rows(
    cells: Iterable[Cell],
    results: Mapping[str, Mapping[str, Any]],
    absent: Mapping[str, str] | None = None,
) -> list[Row]:
    """Return a row for each cell, in order.

    ``results``: by the name of the cell, the output of the stopwatch, with the diagnosis as ``diagnosis``
    where there is one; ``absent``: why a cell could not be run. A cell that is in neither of them has
    failed, as it should have a result.
    """
    return [_row(cell, results.get(cell.name), absent or {}) for cell in cells]


def _row(cell: Cell, result: Mapping[str, Any] | None, absent: Mapping[str, str]) -> Row:
    common = (cell.name, cell.python, cell.pins.name, cell.setup, cell.expected)
    if result is None and cell.name in absent:
        return Row(*common, NOT_RUN, None, None, None, None, absent[cell.name])
    if result is None:
        return Row(*common, "no result", None, None, None, False)
    diagnosis = result.get("diagnosis")
    diagnosed = None if diagnosis is None else str(diagnosis.get("verdict"))
    wanted = None if diagnosis is None else cell.diagnosis
    notes = [str(result["why"])] if "why" in result else []
    errors = sorted(result.get("errors", {}).items(), key=lambda item: -item[1])
    notes += [f"{count} × {text}" for text, count in errors[:2]]
    notes += [f"and {len(errors) - 2} other errors"] if len(errors) > 2 else []
    if diagnosis is not None and diagnosed != wanted:
        notes.append(f"the diagnostics say {diagnosed}, not {wanted}: {_shown(diagnosis)}")
    agrees = result["verdict"] == cell.expected and diagnosed == wanted
    versions = result.get("versions", {})
    return Row(
        *common,
        result["verdict"],
        result.get("wall_s"),
        wanted,
        diagnosed,
        agrees,
        "; ".join(notes),
        versions,
    )


def _shown(diagnosis: Mapping[str, Any]) -> str:
    """Return the reason, or the most informative fields of the diagnosis."""
    kept = ("error", "wall_s", "concurrency", "socket_class", "causes")
    return str(diagnosis.get("why") or {name: diagnosis[name] for name in kept if diagnosis.get(name)})


def agree(table: Sequence[Row]) -> bool:
    """Return whether every cell that was run is as expected, and at least one was run."""
    return all(row.agrees is not False for row in table) and any(row.agrees for row in table)


def summary(table: Sequence[Row]) -> str:
    """Return how many cells agree, differ, and were not run, in words."""
    run = [row for row in table if row.agrees is not None]
    wrong = sum(not row.agrees for row in run)
    verdict = (
        "all as expected" if agree(table) else f"{wrong} not as expected" if run else "nothing was run"
    )
    left = len(table) - len(run)
    return f"{len(run)} cells measured, {verdict}" + (f"; {left} not run" if left else "")


def console() -> Console:
    """Return a console on standard output that is wide enough for the table, whatever the terminal."""
    return Console(width=max(Console().width, 120), highlight=False)


def show(table: Sequence[Row], console: Console) -> None:
    """Print the table to a terminal, then the notes on what differs."""
    diagnosed = any(row.diagnosis for row in table)
    drawn = Table(box=None, pad_edge=False)
    for title in ("", "cell", "packages", "expected", "measured"):
        drawn.add_column(title, no_wrap=True)
    drawn.add_column("s", justify="right")
    if diagnosed:
        drawn.add_column("diagnostics say", no_wrap=True)
    for row in table:
        style = {True: "", False: "bold red", None: "dim"}[row.agrees]
        mark = {True: "✓", False: "✗", None: "-"}[row.agrees]
        seconds = "" if row.seconds is None else f"{row.seconds:.2f}"
        cells = [mark, row.cell, row.packages, row.expected, row.measured, seconds]
        drawn.add_row(*map(Text, cells + ([row.diagnosis or ""] if diagnosed else [])), style=style)
    console.print(drawn)
    for row in table:
        if row.agrees is False:
            console.print(
                Text(f"✗ {row.cell}: expected {row.expected}, measured {row.measured}. {row.note}")
            )
    reasons: dict[str, int] = {}
    for row in table:
        if row.agrees is None:
            reasons[row.note] = reasons.get(row.note, 0) + 1
    for reason, count in reasons.items():
        console.print(Text(f"- {count} not run: {reason}"))
    console.print(Text(summary(table)))


def as_markdown(table: Sequence[Row], where: str) -> str:
    """Return the table in Markdown; ``where`` says how it was measured."""
    lines = [
        f"{summary(table)} ({where}).",
        "",
        "| cell | Python | packages | expected | measured | s | diagnostics say |",
        "|---|---|---|---|---|---:|---|",
    ]
    for row in table:
        python = row.versions.get("python", row.python)
        seconds = "" if row.seconds is None else f"{row.seconds:.2f}"
        measured = (
            row.measured if row.agrees else f"**{row.measured}**" if row.agrees is False else row.measured
        )
        said = row.diagnosis or "-"
        cells = (row.cell, python, row.packages, row.expected, measured, seconds, said)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(table: Sequence[Row], directory: Path, where: str) -> None:
    """Write ``matrix.json`` and ``matrix.md`` to ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    record = {"version": 1, "where": where, "agrees": agree(table), "rows": [asdict(row) for row in table]}
    (directory / "matrix.json").write_text(json.dumps(record, indent=1) + "\n")
    (directory / "matrix.md").write_text(as_markdown(table, where))


def collected(directory: Path, cells: Sequence[Cell], patience: float) -> dict[str, dict[str, Any]]:
    """Return the results by name, once all are there or ``patience`` seconds have passed."""
    give_up = time.monotonic() + patience
    results: dict[str, dict[str, Any]] = {}
    while True:
        for cell in cells:
            path = directory / f"{cell.name}.json"
            if cell.name not in results and path.exists():
                results[cell.name] = json.loads(path.read_text())
        if len(results) == len(cells) or time.monotonic() > give_up:
            return results
        time.sleep(0.1)


def main() -> int:
    """Write the report of compose; return the exit code."""
    parser = argparse.ArgumentParser(description="The report of the matrix.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", help="only these, with commas between")
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS")
    given = parser.parse_args()
    names = given.cells.split(",") if given.cells else [cell.name for cell in CELLS]
    unknown = set(names) - {cell.name for cell in CELLS}
    if unknown:
        parser.error(f"no such cells: {', '.join(sorted(unknown))}")
    cells = [cell for cell in CELLS if cell.name in names]
    table = rows(cells, collected(given.directory, cells, given.wait))
    show(table, console())
    write(table, given.out, "in containers")
    return 0 if agree(table) else 1


if __name__ == "__main__":
    sys.exit(main())
