"""Run the matrix on the interpreters of this machine, without containers: ``python -m docker.native``.

::

    cells ─► interpreters ─► environments (made once, kept) ─► turns: stopwatch, diagnostics ─► report
                  └─ none: listed as not run                      └─ origin: one for all
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from diagnostics.environments import Unavailable, cache_folder, prepare
from docker import report
from docker.cells import CELLS, ROOT, Cell
from docker.interpreters import find
from docker.origin import serving

__all__ = ["measure"]

INSIDE = Path(__file__).resolve().parent / "inside"
_PATIENCE = 300  # seconds for one cell, including the wait for its turn


@click.command()
@click.argument("patterns", nargs=-1, metavar="[CELL]…")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for matrix.json and matrix.md."
)
@click.option(
    "--turns", default=4, show_default=True, help="Cells that measure at one time; most of them only wait."
)
@click.option("--fresh", is_flag=True, help="Recreate the environments, with the newest packages.")
@click.option(
    "--diagnose/--no-diagnose", default=None, help="Compare with the diagnostics.  [where they are]"
)
def main(
    patterns: tuple[str, ...], out: Path | None, turns: int, fresh: bool, diagnose: bool | None
) -> None:
    """Measure the cells whose names match a CELL (such as 'stage-0*' or '*-py3.13'; default all)."""
    # SIGTERM ends this as Ctrl-C does, so that the origin is terminated, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cells = [cell for cell in CELLS if not patterns or any(fnmatch.fnmatch(cell.name, p) for p in patterns)]
    if not cells:
        raise click.UsageError("no cell has such a name")
    if fresh:
        shutil.rmtree(cache_folder(), ignore_errors=True)
    talk = Console(stderr=True, highlight=False)
    asked = _diagnostics_run() if diagnose is None else diagnose
    table = measure(cells, turns, asked, lambda text: talk.print(text, style="dim"))
    report.show(table, report.console())
    report.write(table, out or report.KEPT / "native", "on this machine's interpreters")
    sys.exit(0 if report.agree(table) else 1)


def measure(
    cells: Sequence[Cell],
    turns: int,
    diagnose: bool,
    say: Callable[[str], None] = lambda _: None,
    provider: Callable[[str, Sequence[str], Callable[[str], None]], str] = prepare,
) -> list[report.Row]:
    """Return a row of the report for each cell; ``turns`` of them measure at one time.

    ``provider`` creates the environments, as ``diagnostics.environments.prepare`` does.
    """
    pythons = {cell.python: find(cell.python) for cell in cells}
    absent = {cell.name: f"no interpreter {cell.python}" for cell in cells if pythons[cell.python] is None}
    run = [cell for cell in cells if cell.name not in absent]
    wanted = dict.fromkeys((cell.python, cell.pins) for cell in run)
    say(f"{len(wanted)} environments for {len(run)} cells")

    def provided(python: str | None, packages: Sequence[str]) -> str | Unavailable:
        assert python is not None
        try:
            return provider(python, packages, say)
        except Unavailable as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda key: provided(pythons[key[0]], key[1].packages), wanted)
        environments = dict(zip(wanted, made, strict=True))
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name, serving(Path(name)), ThreadPoolExecutor(turns) as pool:
        directory = Path(name)

        def one(cell: Cell) -> None:
            python = environments[cell.python, cell.pins]
            if isinstance(python, Unavailable):
                results[cell.name] = {"verdict": "broken", "why": f"could not be installed: {python}"}
                return
            result = _measured(cell, python, directory, turns)
            if diagnose and cell.diagnosis is not None:
                result["diagnosis"] = _diagnosed(cell, python)
            results[cell.name] = result
            say(f"{cell.name}: {result['verdict']}")

        list(pool.map(one, run))
    return report.rows(cells, results, absent)


def _measured(cell: Cell, python: str, directory: Path, turns: int) -> dict[str, Any]:
    argv = [python, "-B", str(INSIDE / "cell.py"), cell.name, str(directory), cell.setup]
    argv += ["--answers", cell.answers, "--turns", str(turns)]
    subprocess.run(argv, check=True, timeout=_PATIENCE, env=_environment())
    result: dict[str, Any] = json.loads((directory / f"{cell.name}.json").read_text())
    return result


def _diagnosed(cell: Cell, python: str) -> dict[str, Any]:
    """Return the diagnosis of the cell's process, made by the running interpreter."""
    argv = [sys.executable, "-m", "diagnostics", "check", "--json", "--python", python, *cell.diagnosed_as]
    done = subprocess.run(
        argv,
        cwd=INSIDE,  # the folder of the set-ups: the current directory is on the process's path
        env=_environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )
    try:
        diagnosis: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.splitlines() or [""])[-1]
        return {"verdict": "broken", "why": f"exit code {done.returncode}: {last}"}
    return diagnosis


def _diagnostics_run() -> bool:
    argv = [sys.executable, "-m", "diagnostics", "--help"]
    environment = _environment(PYTHONPATH=str(ROOT))
    return subprocess.run(argv, env=environment, capture_output=True, check=False).returncode == 0


def _environment(**extra: str) -> dict[str, str]:
    foreign = ("_PROXY", "_CA_BUNDLE", "SSL_CERT", "SSLKEYLOG", "PYTHON", "GEVENT")
    kept = {
        name: value for name, value in os.environ.items() if not any(f in name.upper() for f in foreign)
    }
    return {**kept, **extra}


if __name__ == "__main__":
    main()
