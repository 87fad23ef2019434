"""``python -m benchmarks``: measure, and write the tables and the chart that the README shows."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from benchmarks import tables
from benchmarks.ballast import REPORTED, Ballast
from benchmarks.cells import CELLS, Cell
from benchmarks.chart import draw
from benchmarks.clients import CLIENTS
from benchmarks.main_job import SCENARIOS
from benchmarks.openweb.namespace import Unavailable
from benchmarks.results import Results
from benchmarks.rounds import pending, run_cell
from benchmarks.running import ROOT, compile_all, cores
from downloader.process.file_descriptors import raise_limit

_BY_NAME: dict[str, Cell] = {cell.name: cell for cell in CELLS}
_MAIN = _BY_NAME["http-100B"]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*_BY_NAME, *SCENARIOS]), metavar="[NAME]…")
@click.option("--quick", is_flag=True, help="Small counts, under three minutes; nothing is written.")
@click.option("--rounds", type=click.IntRange(1), help="At most so many of each cell.")
@click.option(
    "--client", "only", type=click.Choice(list(CLIENTS)), multiple=True, metavar="NAME",
    help="Only this client (repeatable).",
)  # fmt: skip
@click.option(
    "--fresh", is_flag=True, help="Forget the runs that are kept (of NAMES, if any), and begin anew."
)
@click.option(
    "--origin", type=click.Choice(["auto", "nginx", "dev"]), default="auto", show_default=True,
    help="auto: nginx where it is installed.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path),
    help="Write results.json, results.md and speed.svg there, and leave the project's as they are.",
)  # fmt: skip
@click.option("--tables-only", is_flag=True, help="Measure nothing, write the tables from what is kept.")
def main(
    names: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    only: tuple[str, ...],
    fresh: bool,
    origin: str,
    out: Path | None,
    tables_only: bool,
) -> None:
    """Measure the cells and scenarios in NAMES (default: all), continuing after the last recorded run."""
    # However this ends, stop the running server and client and remove their files.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Sampling and comparing run on the origin's core; the other core is the client's alone.
    os.sched_setaffinity(0, {int(core) for core in cores("origin").split(",")})
    compile_all()
    raise_limit()  # for thousands of connections; child processes inherit it
    kept = _kept(out)
    results = Results(None if quick else kept, fresh and not names)
    for name in names if fresh else ():
        results.forget(name)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if results.begun_elsewhere and not tables_only:
        console.print("What is kept was measured with other versions or elsewhere; --fresh begins anew.")
    wanted = [] if tables_only else list(names or [*_BY_NAME, *SCENARIOS])
    _measure(wanted, results, quick, rounds, only, origin, console.print)
    if quick:
        click.echo(tables.all_tables(results))
        return
    results.save()
    _write(results, kept, out)


def _kept(out: Path | None) -> Path:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        return out / "results.json"
    return ROOT / "benchmarks" / "results.json"


def _measure(
    wanted: list[str],
    results: Results,
    quick: bool,
    rounds: int | None,
    only: tuple[str, ...],
    origin: str,
    say: Callable[..., None],
) -> None:
    cells = [_BY_NAME[name] for name in wanted if name in _BY_NAME]
    clients = {name: CLIENTS[name] for name in only or CLIENTS}
    left = sum(len(pending(cell, results, quick, clients, rounds)) for cell in cells)
    say(f"{left} runs of {len(cells)} cells to go")
    ballast = Ballast(needed=REPORTED and not quick)
    with ballast.keeping():
        for cell in cells:
            run_cell(cell, results, say, quick, origin, clients, ballast=ballast, rounds=rounds)
    for name in wanted:
        if name in SCENARIOS and (quick or name not in results.reports):
            say(f"{name} …")
            try:
                results.reports[name] = SCENARIOS[name](quick)
            except Unavailable as why:
                say(f"  {why}; left out")
            results.save()


def _write(results: Results, kept: Path, out: Path | None) -> None:
    """Write the tables and the chart, beside the results or into the project."""
    every = kept.with_name("results.md")
    chart = kept.with_name("speed.svg") if out is not None else ROOT / "docs" / "speed.svg"
    place = "speed.svg" if out is not None else "../docs/speed.svg"
    picture = f"![files per second of each client]({place})" if draw(results, _MAIN, chart) else ""
    every.write_text(f"# Results\n\nWritten by `make bench`.\n\n{tables.all_tables(results, picture)}\n")
    if out is not None:
        click.echo(every)
        return
    summary = tables.summary(results)
    click.echo(summary)
    tables.insert(ROOT / "README.md", summary)


if __name__ == "__main__":
    try:
        main()
    except json.JSONDecodeError as error:
        sys.exit(f"the results that are kept cannot be read ({error}); --fresh begins anew")
