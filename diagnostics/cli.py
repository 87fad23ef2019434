"""Define the command line of ``python -m diagnostics`` and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from diagnostics.command_lines import note_secrets
from diagnostics.errors import DiagnosticsError, ProbeError, UsageError
from diagnostics.model import Question, Target
from diagnostics.unpacking import is_packed

if TYPE_CHECKING:
    from diagnostics.reports.outcome import Outcome

__all__ = ["main"]

_STYLES = ("requests", "grequests", "urllib3", "downloader")
_USAGE = 2
_INTERNAL = 4
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class _Seconds(click.ParamType[float]):
    """A time such as ``200ms``, ``0.2s``, ``5`` or ``1m``, converted to seconds."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return ``value`` in seconds; fail with a usage error where it is no time."""
        from downloader.core.units import parse_time

        if isinstance(value, float):
            return value
        try:
            return parse_time(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Group(click.Group):
    """A group whose default command is ``check``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``check`` where no command is given, then parse as click does."""
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = ["check", *args]
        return super().parse_args(ctx, args)


_CLI_HELP = """Check whether HTTPS is concurrent under gevent in a process set up as yours; find causes,
remedies.

Without a command: check. See `python -m diagnostics check --help`.
"""


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, help=_CLI_HELP)
def _cli() -> None:
    """Check whether HTTPS is concurrent in a process set up as yours; find causes, remedies."""


@_cli.command(
    "check", help="Check whether HTTPS is concurrent in the given process; `-- COMMAND` checks a command."
)
@click.option("--style", type=click.Choice(_STYLES), help="The client set-up to check. [downloader]")
@click.option(
    "--app", metavar="MODULE[:CALLABLE]", help="Import this application; a callable is its fetch."
)
@click.option("--python", metavar="PATH", default="", help="The interpreter of the process under check.")
@click.option(
    "--after",
    type=_Seconds(),
    help="Probe a command after this time [5s]; say where an import waits after it [18s].",
)
@click.option("--url", default="", help="Probe this URL, not the built-in server.")
@click.option("--cacert", type=click.Path(exists=True, dir_okay=False), help="The CA of --url.")
@click.option("--insecure", is_flag=True, help="Do not verify the certificate of --url.")
@click.option("--requests", type=click.IntRange(2, 10_000), default=10, help="Concurrent GETs. [10]")
@click.option("--delay", type=_Seconds(), default=0.2, help="Delay of each response. [0.2s]")
@click.option("--fix", is_flag=True, help="Measure again with each remedy.")
@click.option("--profile", is_flag=True, help="Print the frames that held the hub.")
@click.option("--expect", type=click.Choice(["concurrent", "serialized", "error"]), help="Exit 0 if it is.")
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis as JSON.")
@click.option("--github", is_flag=True, help="Annotate the line of the cause in a GitHub workflow.")
@click.option("--junit", metavar="FILE", default="", help="Write JUnit XML.")
@click.option("--report", metavar="FILE.html", default="", help="Write a page with timeline and remedies.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def _check(
    style: str | None,
    app: str | None,
    python: str,
    cacert: str | None,
    fix: bool,
    profile: bool,
    expect: str | None,
    as_json: bool,
    github: bool,
    junit: str,
    report: str,
    command: tuple[str, ...],
    **told: Any,
) -> int:
    """Check whether HTTPS is concurrent in the given process; `-- COMMAND` checks a command."""
    if sum(map(bool, (style, app, command))) > 1:
        raise UsageError("give one of --style, --app and -- COMMAND")
    if is_packed() and not (style or app or command or python):
        raise UsageError("what is to be checked? Name --app MODULE, -- COMMAND or --style")
    if told["delay"] <= 0 or told["delay"] > 30:
        raise UsageError("--delay must be more than 0 and at most 30 s")
    if told["url"] and not told["url"].startswith("https://"):
        raise UsageError(f"--url: {told['url']} is not an https:// URL")
    if app and not all(part.isidentifier() for part in app.replace(":", ".", 1).split(".")):
        raise UsageError(f"--app: {app} is not MODULE or MODULE:CALLABLE")
    if told["insecure"] and not told["url"]:
        raise UsageError(
            "--insecure is for --url: the certificate of the built-in server is trusted without it"
        )
    from diagnostics.reports.files import ReportFiles
    from diagnostics.standard_input import StandardInput

    target = Target(
        style=style or ("" if app or command else "downloader"),
        app=app or "",
        command=command,
        python=python,
    )
    note_secrets([*command, told["url"]])
    stdin = StandardInput.of_this_process() if command else None
    question = Question(target, cacert=cacert or "", stdin=stdin, **told)
    from downloader.process.interrupts import inherit_none

    inherit_none()
    files = ReportFiles(junit, report)
    files.check()
    for number in _ENDING:
        signal.signal(number, _stopped)
    outcome = _examined(question, fix, expect or "concurrent")
    try:
        _print(outcome, as_json, github, fix, profile)
    except (OSError, SystemExit) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discards what is left in the buffer
        # The reader of the pipe is gone (rich turns that into SystemExit); still return the exit code.
        if not isinstance(error, (BrokenPipeError, SystemExit)):
            raise
    finally:
        failure = files.write(outcome, fix)
    if failure:
        raise ProbeError(f"{failure}; the check itself is complete")
    return outcome.exit_code


def _examined(question: Question, fix: bool, expected: str) -> Outcome:
    """Return how the check ended."""
    from diagnostics.examine import examine
    from diagnostics.reports.outcome import Outcome

    began = time.monotonic()
    try:
        with Console(stderr=True).status("examining") as status:
            found = examine(question, fix, lambda text: status.update(f"{text} …"))
    except Exception as error:  # whatever it is, a report says so, not that of an earlier check
        text, code = _failure(error)
        return Outcome(question, None, code, time.monotonic() - began, text, expected)
    code = 0 if found.verdict == expected else found.exit_code or 1
    return Outcome(question, found, code, time.monotonic() - began, "", expected)


def _print(outcome: Outcome, as_json: bool, github: bool, fix: bool, profile: bool) -> None:
    from diagnostics.report import show
    from diagnostics.reports.github import commands, without_commands
    from diagnostics.reports.outcome import shown

    found, console = outcome.found, Console(soft_wrap=True)
    if found is None:
        click.echo(f"diagnostics: {shown(outcome.error)}", err=True)
    elif as_json:
        sys.stdout.write(json.dumps(found.json(), indent=2) + "\n")
    elif github:
        with console.capture() as text:
            show(outcome.question, found, console, fix, profile)
        click.echo(without_commands(text.get()), nl=False)
    else:
        show(outcome.question, found, console, fix, profile)
    if github:
        # The runner reads both streams; in a pipe, standard output is then the JSON alone.
        for line in commands(outcome, os.environ):
            click.echo(line, err=as_json)
    if sys.stdout is not None:
        sys.stdout.flush()


def _stopped(number: int, frame: Any) -> None:
    """Exit as after Ctrl-C, so that every process that was started is terminated."""
    for each in (*_ENDING, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


@_cli.command(
    "scenarios",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    help="Run every known trap in a new process; print expected beside measured.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _scenarios(arguments: tuple[str, ...]) -> int:
    """Run every known trap in a new process; print expected beside measured."""
    from diagnostics.scenarios_run import main as run
    from downloader.process.interrupts import inherit_none

    inherit_none()
    return int(run(list(arguments)))


@_cli.command("watch", help="Run COMMAND and report whatever holds its gevent hub.")
@click.option("--max-block", type=_Seconds(), default=0.1, help="Report what holds the hub longer. [100ms]")
@click.option("-v", "--verbose", is_flag=True, help="Whole stacks.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def _watch(max_block: float, verbose: bool, command: tuple[str, ...]) -> int:
    """Run COMMAND and report whatever holds its gevent hub."""
    from diagnostics.watch import watch

    note_secrets(command)
    return int(watch(command, max_block, verbose=verbose))


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        return int(_cli.main(argv, prog_name="diagnostics", standalone_mode=False) or 0)
    except click.exceptions.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except click.ClickException as error:
        text = error.format_message().rstrip(".")
        click.echo(f"diagnostics: {text[:1].lower()}{text[1:]} (see diagnostics --help)", err=True)
        return _USAGE
    except SystemExit as error:
        # Raised by rich when the reader of its output is gone.
        return _INTERNAL if error.code == 1 else int(error.code or 0)
    except Exception as error:
        text, code = _failure(error)
        click.echo(f"diagnostics: {text}", err=True)
        return code


def _failure(error: Exception) -> tuple[str, int]:
    """Return what is told of ``error``, and the exit code."""
    from diagnostics.redaction import redact

    if isinstance(error, DiagnosticsError):
        return redact(str(error)), error.exit_code
    if isinstance(error, OSError):
        return _one_line(error), _INTERNAL
    at = extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(at.filename)}:{at.lineno}"
    text = f"{type(error).__name__}: {_one_line(error)} ({place})"
    return f"internal error, please report it: {text}", _INTERNAL


def _one_line(error: Exception) -> str:
    from diagnostics.redaction import redact

    return redact(" ".join(str(error).split()))[:300]
