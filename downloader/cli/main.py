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
from downloader.cli.params import (
    LIMIT,
    SIZE,
    TIME,
    Fetch,
    Name,
    Parsed,
    Root,
    Word,
    connections,
    count,
    pipeline,
    rate,
    respect,
    version_option,
)
from downloader.config.sink_kinds import SINK_KINDS
from downloader.config.source_kinds import SOURCE_KINDS
from downloader.core.digests import HASHES
from downloader.core.file_errors import refusal
from downloader.core.limits import MOST_CONNECTIONS, MOST_WORKERS
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
@click.option("-o", "--output", metavar="DEST", default="", help="Directory; created if absent.")
@click.option(
    "--journal",
    metavar="DIR",
    default="",
    help="Directory of the journal and of unfinished shards; s3://… with --engine ray.  [DEST]",
)
@click.option(
    "--source",
    "source_type",
    type=Name(SOURCE_KINDS, later=["s3", "index"]),
    help="Kind of SOURCE.  [detected from its form]",
)
@click.option(
    "--store",
    type=Name(SINK_KINDS),
    default="files",
    show_default=True,
    help="local: on the disks of nodes, with --engine ray; null: fetch, count, discard.",
)
@click.option(
    "--layout",
    type=Word(["flat", "hashed", "mirror"]),
    metavar="flat|hashed|mirror",
    default="flat",
    show_default=True,
    help="name; ab/cd/name by a hash of the name; host/path/name.",
)
@click.option(
    "--workers",
    type=count(1, MOST_WORKERS),
    metavar="N",
    help="Processes.  [usable CPUs, no more than a CPU quota allows]",
)
@click.option(
    "--connections",
    type=Parsed("n", connections),
    metavar="N|auto",
    default="auto",
    show_default=True,
    help="Maximum open connections per worker; auto: 32, and more while that is faster.",
)
@click.option(
    "--per-host",
    type=count(1, MOST_CONNECTIONS),
    metavar="N",
    help="Maximum of those to one host.  [all; 8 for a list over many hosts]",
)
@click.option(
    "--resolver",
    type=Word(["auto", "system", "cares"]),
    metavar="auto|system|cares",
    default="auto",
    show_default=True,
    help="How names are looked up; auto: c-ares where the system asks files and DNS only.",
)
@click.option("--dns-server", metavar="ADDR", default="", help="Ask this name server, with c-ares.")
@click.option(
    "--pipeline",
    type=Parsed("n", pipeline),
    metavar="auto|off|N",
    default="auto",
    show_default=True,
    help="Requests in flight on one connection.",
)
@click.option(
    "--rate", type=rate(), metavar="N", help="Maximum requests a second to one host, by all workers."
)
@click.option(
    "--lane",
    type=Word(["auto", "requests"]),
    metavar="auto|requests",
    default="auto",
    show_default=True,
    help="requests: never the pipelined client.",
)
@click.option(
    "--retries",
    type=count(0, 10**6),
    metavar="N",
    default=5,
    show_default=True,
    help="Retries of each file.",
)
@click.option(
    "--backoff", type=TIME, default="0.5s", show_default=True, help="Wait before the first retry."
)
@click.option(
    "--max-retry-after", type=TIME, default="2m", show_default=True, help="Maximum Retry-After to obey."
)
@click.option(
    "--connect-timeout",
    type=TIME,
    default="10s",
    show_default=True,
    help="Maximum time to connect, per attempt.",
)
@click.option(
    "--read-timeout", type=TIME, default="30s", show_default=True, help="Maximum silence, per attempt."
)
@click.option(
    "--deadline", type=TIME, default="10m", show_default=True, help="Maximum for a whole file, per attempt."
)
@click.option(
    "--min-speed", type=SIZE, metavar="SIZE", help="A body slower than SIZE a second, for 10 s, fails."
)
@click.option("--max-size", type=LIMIT, help="A larger file fails.")
@click.option("--limit", type=count(1, 10**15), metavar="N", help="Only the first N files of SOURCE.")
@click.option(
    "-H",
    "headers",
    multiple=True,
    metavar="'Name: value'",
    help="Header to send to every host that SOURCE names (repeatable).",
)
@click.option("--user-agent", metavar="TEXT", default="", help="Instead of mass-downloader/VERSION.")
@click.option("--netrc", is_flag=True, help="Credentials from $NETRC or ~/.netrc.")
@click.option(
    "--auth-file",
    type=click.Path(),
    metavar="FILE",
    help="File whose first line is user:password, for every host that SOURCE names.",
)
@click.option("--proxy", metavar="URL|env", help="Proxy of all requests; env: from the environment.")
@click.option(
    "--cacert",
    type=click.Path(),
    metavar="FILE|system",
    default="",
    help="CA certificates to trust instead, PEM; system: those of this system.",
)
@click.option("--cert", type=click.Path(), metavar="FILE", default="", help="Client certificate, PEM.")
@click.option(
    "--key",
    type=click.Path(),
    multiple=True,
    metavar="FILE",
    help="Key of --cert, if in another file. Without --cert, index and name are those of --sample-key.",
)
@click.option("--insecure", is_flag=True, help="Do not verify server certificates.")
@click.option(
    "--compressed",
    is_flag=True,
    help="Request gzip, deflate and, where installed, br and zstd; store decoded.",
)
@click.option(
    "--redirects", type=count(0, 100), metavar="N", default=5, show_default=True, help="Maximum hops."
)
@click.option(
    "--allow-private-redirects", is_flag=True, help="Follow redirects from public to private addresses."
)
@click.option("--robots", is_flag=True, help="Do not request what robots.txt of a host disallows.")
@click.option(
    "--respect",
    type=Parsed("list", respect),
    metavar="x-robots-tag",
    default="",
    help="Do not store a response whose X-Robots-Tag refuses it (noai, noindex, …).",
)
@click.option(
    "--resume/--restart", "resume", default=True, help="Continue from DEST's journal, or discard it."
)
@click.option("--retry-failed", is_flag=True, help="Fetch only files that the journal records as failed.")
@click.option(
    "--relist", is_flag=True, help="Read SOURCE again; files in DEST and its journal need no request."
)
@click.option(
    "--existing",
    type=Word(["replace", "keep", "fail"]),
    metavar="replace|keep|fail",
    default="replace",
    show_default=True,
    help="What to do with other files in DEST that have a name of SOURCE.",
)
@click.option(
    "--checksums",
    type=Word(["off", "list", "all"]),
    metavar="off|list|all",
    default="list",
    show_default=True,
    help="Verify those of the list; all: also those that responses state.",
)
@click.option(
    "--hash",
    type=Word(HASHES),
    metavar="ALG",
    callback=lambda ctx, param, value: value or "",
    help="Compute one for every file, for a manifest: sha256, blake3, …",
)
@click.option("--fsync", is_flag=True, help="Files counted as stored survive a power failure.")
@click.option("--dry-run", is_flag=True, help="List and count, store nothing.")
@click.option(
    "--progress",
    type=Word(["auto", "bar", "plain", "none"]),
    metavar="auto|bar|plain|none",
    default="auto",
    show_default=True,
    help="On stderr; auto: bar on a terminal that can draw it.",
)
@click.option(
    "--report", type=click.Path(), default="", metavar="FILE.json", help="Write the report there, too."
)
@click.option(
    "--failures", type=click.Path(), default="", metavar="FILE.jsonl", help="A line for each failed file."
)
@click.option(
    "--manifest",
    type=click.Path(),
    default="",
    metavar="FILE",
    help="A row for each stored file: .jsonl, .csv, .parquet, or SHA256SUMS.",
)
@click.option(
    "--preflight",
    type=Word(["auto", "probe", "off"]),
    metavar="auto|probe|off",
    default="auto",
    show_default=True,
    help="Refuse a process whose HTTPS would be serialized; probe: measure it first.",
)
@click.option(
    "--engine",
    type=Word(["local", "ray"]),
    metavar="local|ray",
    default="local",
    show_default=True,
    help="ray: on all nodes of a Ray cluster, which share DEST and --journal.",
)
@click.option(
    "--ray-address",
    metavar="auto|ADDR|local",
    default="auto",
    show_default=True,
    help="The cluster; auto: the one of this machine or of $RAY_ADDRESS; local: start one here.",
)
@click.option(
    "--slice-files",
    type=count(1, 10**7),
    metavar="N",
    default=100_000,
    show_default=True,
    help="Files of a slice, the part of a job that a node runs at a time.",
)
@click.option(
    "--scratch",
    metavar="DIR",
    default="",
    help="Directory on the disk of each node, for journals of slices; may have $VARIABLES.  [temporary]",
)
@click.option("--json", "as_json", is_flag=True, help="The report on stdout as JSON.")
@click.option(
    "-v", "verbose", count=True, help="Each failed file on stderr; -vv: each retry and tracebacks, too."
)
@click.option("-q", "quiet", is_flag=True, help="Only errors on stderr.")
@click.option("--log-json", is_flag=True, help="Every line on stderr is JSON.")
def fetch(**given: Any) -> int:
    """Fetch every file of SOURCE into DEST."""
    console = click.get_current_context().find_object(Console) or Console([])
    config = config_of(given)
    if config.key_is_encrypted and (password := credentials.ask_password(config.key or config.cert)):
        import msgspec

        config = msgspec.structs.replace(config, key_password=password)
    console.secrets = config.secrets
    if config.dry_run:
        from downloader.engine.dry_run import dry_run

        dry_run(config, as_json=given["as_json"], say=say)
        return 0
    from downloader.reporting.report import as_text

    report, failures, faulty, _ = _run(config)
    if given["as_json"]:
        say_json(report)
    else:
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
        from downloader.cluster.driver import run_cluster

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
