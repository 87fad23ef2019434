"""Run the command line: argv and environment → Config → run → exit code.

Only ``cli`` reads argv and the environment, but for TERM (``reporting.progress``), what buckets and Ray
take from it, and OpenSSL's variables for ``--cacert system``. Results go to stdout, everything else to
stderr. An error is one line; -vv adds its traceback.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from downloader.cli import credentials
from downloader.cli.commands import demo, serve, status, verify
from downloader.cli.configuration import config_of
from downloader.cli.params import Fetch, Root, version_option
from downloader.core.file_errors import refusal
from downloader.core.pipeline_order import doubtful_text
from downloader.errors import ROW_FAULTS, ConfigError, DownloaderError
from downloader.process.interrupts import Interrupted, interruptible
from downloader.process.isolation import why_missing
from downloader.process.standard_streams import outlive_stderr, own_standard_streams
from downloader.reporting.console import Console, one_line, say, say_json

if TYPE_CHECKING:
    from downloader.config.config import Config
    from downloader.engine.job import Finished

__all__ = ["main"]


@click.group(cls=Root, add_help_option=False, help="Fetch every file of a source.")
@version_option
def cli() -> None:
    """Fetch every file of a source."""


_FETCH_HELP = """Fetch every file of SOURCE into DEST. Files that cannot be stored are listed, with the
reason.

SOURCE is a file server, http(s)://host[:port][/prefix]; a list of URLs, which is a file (.txt, .csv,
.tsv, .jsonl, each also .gz or .zst, .parquet, .arrow), a glob pattern or a directory of such files; or
- for a list on standard input.
"""


@cli.command(cls=Fetch, help=_FETCH_HELP)
@click.argument("source")
@click.option("--json", "as_json", is_flag=True, help="The report on stdout as JSON.")
def fetch(**given: Any) -> int:
    """Fetch every file of SOURCE into DEST."""
    console = click.get_current_context().find_object(Console) or Console([])
    config = config_of(given)
    if config.key_is_encrypted and (password := credentials.ask_password(config.key or config.cert)):
        config = config.replace(key_password=password)
    console.secrets = config.secrets
    if config.dry_run:
        from downloader.engine.dry_run import dry_run

        dry_run(config, as_json=given["as_json"], say=say)
        return 0
    from downloader.reporting.report import as_text

    report, failures, faulty, _ = _run(config)
    if given["as_json"]:
        say_json(report)
    elif not config.quiet:
        # A retry cannot mend what a list says, nor what a host refuses.
        lasting = {*ROW_FAULTS, "robots", "opted-out"}
        retry = any(code not in lasting for code in report.failed_by_error)
        relist = not config.sink_kind.shard_items(config)
        command = console.next_command(report.exit_code, retry=retry, faulty=faulty, relist=relist)
        # Where the same command would be refused again, `stopped_by` names one that is not.
        refused = "--restart" in (report.stopped_by or "")
        say(as_text(report, "" if refused else command, failures))
    if report.exit_code == 130:
        console.complain("interrupted; the same command resumes")
    elif report.stopped_by:
        console.complain(report.stopped_by)
    elif report.failed:
        console.complain(f"{report.failed:,} of {report.listed:,} files failed")
    elif report.doubtful:
        console.complain(doubtful_text(report.doubtful))
    return report.exit_code


def _run(config: Config) -> Finished:
    """Run ``config`` with its engine."""
    if config.engine == "ray":
        from downloader.cluster.driver.job import run_cluster

        return run_cluster(config)
    gc.disable()  # imports make no garbage
    from downloader.engine.job import run_job

    gc.enable()
    return run_job(config)


for _command in (status, verify, serve, demo):
    cli.add_command(_command)


def _lost_directory() -> str:
    """Return why no relative path can be resolved, "" if it can: the current directory may be removed."""
    try:
        os.getcwd()
    except OSError as error:
        return (
            f"the current directory cannot be found: {error.strerror}; change to another, or use full paths"
        )
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        own_standard_streams()
    except DownloaderError as error:
        click.echo(f"downloader: error: {error}", err=True)
        return error.exit_code
    outlive_stderr()
    console = Console(arguments)
    for stream in (sys.stdout, sys.stderr):
        # A file name that the terminal's encoding cannot express must not end a run.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with interruptible():
            result = cli.main(arguments, prog_name="downloader", standalone_mode=False, obj=console)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        console.complain(one_line(error))
        return ConfigError.exit_code
    except DownloaderError as error:
        console.trace()
        console.complain(str(error))
        return error.exit_code
    except (Interrupted, KeyboardInterrupt, click.Abort):
        console.complain("interrupted")
        return 130
    except Exception as error:
        console.trace()
        if isinstance(error, FileNotFoundError) and (lost := _lost_directory()):
            console.complain(lost)
            return ConfigError.exit_code
        if isinstance(error, ModuleNotFoundError) and (why := why_missing()):
            console.complain(f"{error}; {why}")
            return ConfigError.exit_code
        defect = f"a defect in the downloader: {type(error).__name__}: {error}; -vv shows where"
        console.complain(refusal(error) or defect)
        return DownloaderError.exit_code
