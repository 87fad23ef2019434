"""The commands besides the download: status, verify, serve, demo."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from downloader.cli.params import Command, Parsed, count, verbose
from downloader.core.bucket_place import place
from downloader.core.limits import MOST_WORKERS
from downloader.core.units import parse_range, parse_size, parse_time
from downloader.reporting.console import say, say_json

if TYPE_CHECKING:
    from downloader.core.bucket_access import BucketAccess

__all__ = ["demo", "serve", "status", "verify"]


def _range(name: str, parse: Callable[[str], Any]) -> Parsed:
    """Return the type of an option whose value is N, or MIN-MAX."""
    return Parsed(name, lambda text: parse_range(text, parse))


_PLACE = Parsed("place", place)

_dest = click.argument("dest", type=_PLACE)

_journal = click.option(
    "--journal",
    type=_PLACE,
    metavar="DIR",
    default="",
    help="Where its journal is, if it was made with --journal.",
)


_ACCESS = (
    click.option("--endpoint-url", metavar="URL", default="", help="s3://…: another store than AWS's."),
    click.option("--region", metavar="NAME", default="", help="s3://…: the region."),
    click.option("--proxy", metavar="URL|env", help="s3://…: the proxy; env: from the environment."),
    click.option(
        "--cacert",
        type=click.Path(),
        metavar="FILE|system",
        default="",
        help="s3://…: CA certificates to trust instead, PEM; system: those of this system.",
    ),
    click.option("--insecure", is_flag=True, help="s3://…: do not verify its certificate."),
)


def _access(command: Callable[..., int]) -> Callable[..., int]:
    """Give ``command`` the options about access to a bucket, as the one argument ``access``."""

    @functools.wraps(command)
    def called(
        endpoint_url: str, region: str, proxy: str | None, cacert: str, insecure: bool, **given: Any
    ) -> int:
        from downloader.cli.configuration import bucket_access

        return command(access=bucket_access(endpoint_url, region, proxy, cacert, insecure), **given)

    for option in reversed(_ACCESS):
        called = option(called)
    return called


_STATUS_HELP = """Show what the journal of DEST records. Exit code 0: everything is stored, 1: complete,
but files
failed, 4: not complete.

DEST, or --journal, may be s3://BUCKET/PREFIX, where a job over many machines has its plan.
"""


@click.command(cls=Command, help=_STATUS_HELP)
@_dest
@_journal
@_access
@click.option("--json", "as_json", is_flag=True)
@verbose
def status(dest: str, journal: str, access: BucketAccess, as_json: bool) -> int:
    """Show what the journal of DEST records."""
    from downloader.cluster.driver.status import cluster_status
    from downloader.core.pipeline_order import doubtful_text
    from downloader.reporting.report import state_of
    from downloader.storage.verify import status as read_status

    found = cluster_status(journal or dest, access) or read_status(journal or dest)
    if as_json:
        say_json(found)
    else:
        so_far = "" if found.source_read else "  (up to --limit)" if found.complete else " so far"
        say(
            f"{found.source} → {dest}: {state_of(found.complete)}\n"
            f"  listed   {found.listed:,}{so_far}\n"
            f"  stored   {found.stored:,}  ({found.bytes:,} bytes)\n"
            f"  failed   {found.failed:,}\n"
            f"  pending  {found.pending:,}"
        )
        if found.slices:
            say("  slices   " + ", ".join(f"{number:,} {what}" for what, number in found.slices.items()))
        for code, number in found.failed_by_error.items():
            say(f"           {number:,}  {code}")
        if found.doubtful:
            say(doubtful_text(found.doubtful))
    if not found.complete:
        return 4
    return 1 if found.failed or found.doubtful else 0


_VERIFY_HELP = """Compare the files in DEST with its journal: size and checksum of each.

Missing and changed files are listed and recorded as failed; the command that made DEST then fetches
them again. Exit code 0 when all agree, 1 when not.
"""


@click.command(cls=Command, help=_VERIFY_HELP)
@_dest
@_journal
@_access
@click.option("--json", "as_json", is_flag=True)
@click.option("-q", "quiet", is_flag=True, help="Nothing where all agree.")
@verbose
def verify(dest: str, journal: str, access: BucketAccess, as_json: bool, quiet: bool) -> int:
    """Compare the files in DEST with its journal: size and checksum of each."""
    from downloader.cluster.driver.plan_home import may_have_plan
    from downloader.core.naming import shown
    from downloader.storage.verify import remarks
    from downloader.storage.verify import verify as check

    found = None
    if may_have_plan(journal or dest):
        from downloader.cluster.driver.verify import verify_cluster

        found = verify_cluster(dest, quiet, journal, access)
    found = found or check(dest, quiet, journal, access)
    if as_json:
        say_json(found)
    elif not quiet or found.exit_code:
        for name in found.damaged:
            say(f"damaged: {shown(name)}")
        for name, problem in found.published.items():
            say(f"damaged: {shown(name)}: {problem}")
        say(f"{found.agree:,} of {found.checked:,} files agree with the journal")
        if found.damaged and not found.written_down:
            where = "the file system is read-only or full"
            say(f"{where}: to have them fetched again, verify where it can be written")
        for line in remarks(found):
            say(line)
    return found.exit_code


_SERVE_HELP = """Serve any number of generated files, as a file server that SOURCE can name.

Prints `listening http://HOST:PORT` when it is ready, with --tls also `ca FILE`; stops on SIGTERM.
"""


@click.command(cls=Command, help=_SERVE_HELP)
@click.option("--files", type=count(0, 10**9), metavar="N", default=1000, show_default=True)
@click.option(
    "--size",
    type=_range("size", parse_size),
    default="100",
    show_default=True,
    metavar="N|MIN-MAX",
)
@click.option(
    "--page", type=count(1, 10**9), metavar="N", default=1000, show_default=True, help="Names per page."
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=count(0, 65535), metavar="P", default=0, help="[any free port]")
@click.option("--tls", is_flag=True)
@click.option(
    "--delay",
    type=_range("time", parse_time),
    default="0",
    show_default=True,
    metavar="T|MIN-MAX",
)
@click.option("--workers", type=count(1, MOST_WORKERS), metavar="N", default=1, show_default=True)
@click.option(
    "--drop-rate",
    type=float,
    metavar="P",
    default=0.0,
    show_default=True,
    help="Probability that a response with a file is cut off, or reset.",
)
@click.option("--seed", type=count(0, 10**18), metavar="N", help="Seed of the drops, to repeat them.")
@click.option(
    "--close-after",
    type=count(1, 10**9),
    metavar="N",
    help="Responses per connection.  [any number]",
)
@click.option("--next-file", is_flag=True, help="Spell the marker NextFile, as the talk's slides do.")
def serve(**given: Any) -> int:
    """Serve any number of generated files, as a file server that SOURCE can name."""
    from downloader.testserver.server import serve as run_server
    from downloader.testserver.settings import Settings

    given["next_file_alias"] = given.pop("next_file")
    given["close_after"] = given["close_after"] or 0
    run_server(Settings(**given), say)
    return 0


@click.command(
    cls=Command,
    help="Start a TLS file server on loopback, download from it, verify every byte, show the report.",
)
@click.option("--files", type=count(1, 10**7), metavar="N", default=20_000, show_default=True)
@click.option("-o", "--output", default="demo-files", show_default=True, metavar="DEST")
def demo(files: int, output: str) -> int:
    """Start a TLS file server on loopback, download from it, verify every byte, show the report."""
    from downloader.cli.demo import run_demo

    return run_demo(files, output)
