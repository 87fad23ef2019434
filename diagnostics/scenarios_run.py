"""Run ``python -m diagnostics scenarios``: each scenario in a new process, expected beside measured."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from diagnostics import certificate, environments
from diagnostics.environments import Unavailable
from diagnostics.errors import DiagnosticsError, ProbeError, UsageError
from diagnostics.examine import examine
from diagnostics.model import Diagnosis, Question, Target
from diagnostics.scenario import Expected, Scenario, chosen
from diagnostics.standard_input import StandardInput
from diagnostics.unpacking import scenarios_in
from downloader.process.watching import STALL_TIMEOUT, watched

__all__ = ["Row", "Skipped", "interpreter", "main", "run", "server"]

_DELAY = 0.2
_NONE = "none"  # the verdict where the probe could not be run


@dataclass(frozen=True)
class Row:
    """The result of a scenario.

    ``outcome``: ``as expected``, ``differs``, ``skipped`` or ``failed`` (it could not be run); ``reason``:
    why, for the last two; ``seconds``: the total duration.
    """

    scenario: Scenario
    outcome: str
    python: str = ""
    verdict: str = ""
    cause: str = ""
    where: str = ""
    wall_s: float | None = None
    error: str = ""
    reason: str = ""
    seconds: float = 0.0


Progress = Callable[[str], None]


def run(scenario: Scenario, python: str, offline: bool, progress: Progress, delay: float = _DELAY) -> Row:
    """Run ``scenario`` with the interpreter ``python``, or with another one if it needs that."""
    began = time.monotonic()
    try:
        chosen_python = interpreter(scenario, python, offline, progress)
    except Skipped as skipped:
        return Row(scenario, "skipped", reason=str(skipped))
    except Unavailable as error:
        return Row(scenario, "failed", reason=str(error))
    version = environments.version_of(chosen_python)
    try:
        with server(scenario) as (url, cacert), _surroundings(scenario), _input(scenario) as stdin:
            app = "" if scenario.command else scenario.app
            target = Target(app=app, command=scenario.command, python=chosen_python)
            question = Question(target, delay=delay, url=url, cacert=cacert, stdin=stdin)
            found = examine(question, progress=progress)
    except DiagnosticsError as error:
        expected, seconds = scenario.expected_on(version), time.monotonic() - began
        if expected.verdict != _NONE:
            return Row(scenario, "failed", version, reason=str(error), seconds=seconds)
        outcome = "as expected" if fnmatchcase(str(error), expected.error) else "differs"
        return Row(scenario, outcome, version, verdict=_NONE, error=str(error), seconds=seconds)
    return _compared(scenario, version, found, time.monotonic() - began)


class Skipped(Exception):
    """A scenario that is not run; the text says why."""


def interpreter(scenario: Scenario, python: str, offline: bool, progress: Progress) -> str:
    """Return ``python``, or another interpreter or an environment where ``scenario`` needs one.

    Raises Skipped, and Unavailable where an environment cannot be made.
    """
    if not scenario.runs_on(environments.version_of(python)):
        found = next(filter(None, map(environments.find, scenario.pythons)), None)
        if found is None:
            raise Skipped(f"needs Python {' or '.join(scenario.pythons)}, which was not found")
        python = found
    if environments.satisfies(python, scenario.packages):
        return python
    if offline:
        raise Skipped(f"offline; needs {', '.join(scenario.packages)}")
    return environments.prepare(python, scenario.packages, progress)


def _compared(scenario: Scenario, version: str, found: Diagnosis, seconds: float) -> Row:
    cause, where = (found.causes[0].code, found.causes[0].where) if found.causes else ("", "")
    fits = _fits(scenario.expected_on(version), found.verdict, cause, where)
    return Row(
        scenario,
        "as expected" if fits else "differs",
        version,
        verdict=found.verdict,
        cause=cause,
        where=where,
        wall_s=found.wall_s,
        error=found.error,
        seconds=seconds,
    )


def _fits(expected: Expected, verdict: str, cause: str, where: str) -> bool:
    same = (expected.verdict, expected.cause) == (verdict, cause)
    return same and (not expected.where or fnmatchcase(where, expected.where))


@contextlib.contextmanager
def _surroundings(scenario: Scenario) -> Iterator[None]:
    """Change to the folder of the scenarios, and set the environment that ``scenario`` needs.

    Temporary files of the process under check are removed.
    """
    before, environment = os.getcwd(), dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="scenario-") as temporary:
        os.chdir(scenario.folder)
        os.environ["TMPDIR"] = temporary
        # Settings of the running interpreter are not meant for another one.
        for name in [name for name in os.environ if name.startswith("PYTHON")]:
            del os.environ[name]
        if scenario.path:
            os.environ["PYTHONPATH"] = os.path.join(scenario.folder, scenario.path)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(before)


@contextlib.contextmanager
def _input(scenario: Scenario) -> Iterator[StandardInput | None]:
    if not scenario.input:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        file.write(scenario.input.encode())
        file.seek(0)
        yield StandardInput(file.fileno())


@contextlib.contextmanager
def server(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the URL and certificate of the scenario's own server; empty strings where it has none."""
    if not scenario.server:
        yield "", ""
        return
    with tempfile.TemporaryDirectory(prefix="scenario-") as folder:
        certificate.write(Path(folder))
        file = Path(scenario.folder) / f"{scenario.app.partition(':')[0]}.py"
        with subprocess.Popen([sys.executable, str(file), folder], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                with watched(process, STALL_TIMEOUT):
                    port = process.stdout.readline().decode().strip()
                if not port:
                    raise ProbeError(f"the server of {scenario.name} did not start")
                yield f"https://localhost:{port}/", os.path.join(folder, certificate.CA)
            finally:
                process.kill()


# the command


def _table(rows: Sequence[Row]) -> Table:
    table = Table(show_lines=False)
    for title in ("scenario", "python", "expected", "measured", "wall", ""):
        table.add_column(title, overflow="fold", justify="right" if title == "wall" else "left")
    marks = {
        "as expected": ("ok", "green"),
        "differs": ("DIFFERS", "bold red"),
        "skipped": ("skipped", "dim"),
        "failed": ("FAILED", "bold red"),
    }
    for row in rows:
        expected = row.scenario.expected_on(row.python)
        ran = row.outcome in ("as expected", "differs")
        measured = _cell(row.verdict, row.cause, row.where) if ran else Text(row.reason, "dim")
        table.add_row(
            row.scenario.name,
            row.python,
            _cell(expected.verdict, expected.cause, expected.where),
            measured,
            f"{row.wall_s:.2f} s" if row.wall_s is not None else "",
            Text(*marks[row.outcome]),
        )
    return table


def _cell(verdict: str, cause: str, where: str) -> Text:
    style = {"concurrent": "green", "serialized": "red", "error": "red"}.get(verdict, "")
    return Text("\n").join([Text(verdict, style), *(Text(each) for each in (cause, where) if each)])


def _summary(rows: Sequence[Row]) -> str:
    order = ("as expected", "differs", "failed", "skipped")
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in order}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def _json(rows: Sequence[Row]) -> str:
    records: list[dict[str, Any]] = [
        {
            "name": row.scenario.name,
            "summary": row.scenario.summary,
            "packages": row.scenario.packages,
            "python": row.python or None,
            "expected": asdict(row.scenario.expected_on(row.python)),
            "measured": {"verdict": row.verdict, "cause": row.cause, "where": row.where}
            if row.verdict
            else None,
            "wall_s": row.wall_s,
            "error": row.error,
            "outcome": row.outcome,
            "reason": row.reason,
            "seconds": round(row.seconds, 2),
        }
        for row in rows
    ]
    return json.dumps({"version": 1, "scenarios": records}, indent=2)


_COMMAND_HELP = """Run every known trap in a new process; print expected beside measured.

Exit code 1 when one differs, 4 when one could not be run.
"""


@click.command("scenarios", context_settings={"help_option_names": ["-h", "--help"]}, help=_COMMAND_HELP)
@click.option("--offline", is_flag=True, help="Install nothing; skip scenarios that need other packages.")
@click.option("--only", metavar="NAME", multiple=True, help="Run only this one; repeatable.")
@click.option("--python", metavar="PATH", default=sys.executable, help="The interpreter. [this one]")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Scenarios of your own.",
)
@click.option("--list", "only_list", is_flag=True, help="List the scenarios and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def _command(
    offline: bool, only: tuple[str, ...], python: str, folder: Path | None, only_list: bool, as_json: bool
) -> int:
    """Run every known trap in a new process; print expected beside measured."""
    with tempfile.TemporaryDirectory(prefix="diagnostics-") as unpacked:
        return _all(
            chosen(folder or scenarios_in(Path(unpacked)), only), python, offline, only_list, as_json
        )


def _all(wanted: Sequence[Scenario], python: str, offline: bool, only_list: bool, as_json: bool) -> int:
    console = Console(soft_wrap=True)
    if only_list:
        for scenario in wanted:
            console.print(Text.assemble((f"{scenario.name:<36}", "bold"), scenario.summary))
        return 0
    python = _checked(python)
    rows = list(_running(wanted, python, offline))
    if as_json:
        sys.stdout.write(_json(rows) + "\n")
    else:
        # The width of the terminal, elsewhere enough for the longest place.
        Console(width=None if sys.stdout.isatty() else 150).print(_table(rows))
        console.print(_summary(rows))
    outcomes = {row.outcome for row in rows}
    return 1 if "differs" in outcomes else 4 if "failed" in outcomes else 0


def _running(wanted: Sequence[Scenario], python: str, offline: bool) -> Iterator[Row]:
    """Run the scenarios one by one, with progress on stderr; yield the rows."""
    stderr = Console(stderr=True, highlight=False, soft_wrap=True)
    for number, scenario in enumerate(wanted, 1):
        head = f"{number}/{len(wanted)} {scenario.name}"
        with stderr.status(head) as status:

            def progress(text: str, head: str = head, status: Status = status) -> None:
                status.update(f"{head}: {text} …")

            row = run(scenario, python, offline, progress)
        stderr.print(Text(f"{head}: {row.outcome}{_why(row)}"))
        yield row


def _why(row: Row) -> str:
    """Return the explanation of a row that is not as expected, in brackets."""
    if row.outcome == "differs":
        said = row.error if row.verdict == _NONE else ""
        return f" ({' '.join(filter(None, (row.verdict, row.cause, row.where, said)))})"
    return f" ({row.reason})" if row.reason else ""


def _checked(python: str) -> str:
    """Return the absolute path of the interpreter, since the current directory will change."""
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"{python}: there is no such interpreter, or it cannot be executed")
    try:
        environments.version_of(found)
    except Unavailable as error:
        raise UsageError(str(error)) from None
    return os.path.abspath(found)


def main(argv: list[str]) -> int:
    """Run the command with the arguments ``argv``; return the exit code."""
    return int(_command.main(argv, prog_name="diagnostics scenarios", standalone_mode=False) or 0)
