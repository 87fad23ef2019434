"""Write docs/matrix.md from the measurements of the last runs: ``python -m docker.page``.

Reads the ``matrix.json`` of the run in containers and of the native one, whichever exist.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from docker import report
from docker.cells import LEGACY, MODERN, ROOT

__all__ = ["compact"]

_RUNS = [report.KEPT / kind / "matrix.json" for kind in ("compose", "native")]
_KEY = (
    "Seconds for ten answers of 0.5 s each: about 0.5 is concurrent, about 5 (bold) one after the other. "
    "✗ marks what was not as expected, - what there is no cell for or was not run."
)


def compact(rows: Iterable[report.Row], pythons: Sequence[str]) -> str:
    """Return a Markdown table with a line for each set-up, and a column for each of ``pythons``."""
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.python in pythons:
            kind = row.cell.rpartition("-py")[0]
            lines.setdefault(kind, {})[row.python] = _short(row)
    table = [f"| | {' | '.join(pythons)} |", "|---|" + "---:|" * len(pythons)]
    for kind, measured in lines.items():
        table.append(f"| {kind} | {' | '.join(measured.get(python, '-') for python in pythons)} |")
    return "\n".join(table)


def _short(row: report.Row) -> str:
    if row.agrees is None:
        return "-"
    seconds = "" if row.seconds is None else f"{row.seconds:.2f}"
    text = {"concurrent": seconds, "serialized": f"**{seconds}**"}.get(row.measured, row.measured)
    return text if row.agrees else f"✗ {row.measured} {seconds}"


def main() -> None:
    """Write the page."""
    runs: list[tuple[str, list[report.Row]]] = []
    for path in _RUNS:
        if path.exists():
            record = json.loads(path.read_text())
            runs.append((record["where"], [report.Row(**row) for row in record["rows"]]))
    if not runs:
        sys.exit("nothing was measured: make matrix, or make matrix-native")
    parts = ["# The matrix\n\nWritten by `python -m docker.page` from what was measured.\n"]
    for where, rows in runs:
        title = f"## Measured {where}"
        parts += [title, _KEY, compact(rows, LEGACY), compact(rows, MODERN)]
        parts += ["### Every cell", report.as_markdown(rows, where)]
    (ROOT / "docs" / "matrix.md").write_text("\n\n".join(parts).rstrip() + "\n")


if __name__ == "__main__":
    main()
