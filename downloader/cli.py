"""The command line: argv and environment → Config → run → exit code.

The only module that reads argv and the environment. stdout carries results, stderr the rest. An error
is one line; its traceback is shown with -vv.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from downloader._version import VERSION
from downloader.core.redact import redact
from downloader.core.units import parse_range, parse_size, parse_time
from downloader.errors import ConfigError, DownloaderError

__all__ = ["main"]

_COMMANDS = ("fetch", "demo", "serve", "status", "verify")


class _Parsed(click.ParamType[Any]):
    """A value that one of our parsers reads; its ValueError is the message."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Word(click.Choice[str]):
    """A choice that names the nearest right spelling."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from difflib import get_close_matches

        if value not in self.choices:
            near = get_close_matches(str(value), self.choices, 1, 0.4)
            hint = f"did you mean {near[0]!r}?" if near else ""
            self.fail(f"{value!r} is not one of {', '.join(self.choices)}. {hint}".strip(), param, ctx)
        return str(value)


SIZE = _Parsed("size", parse_size)
TIME = _Parsed("time", parse_time)


class _Default(click.Group):
    """``downloader SOURCE …`` is ``downloader fetch SOURCE …``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            args = ["--help"]
        if args[0] not in (*_COMMANDS, "--version"):
            args = ["fetch", *args]
        return super().parse_args(ctx, args)


def _later(*names: str, flag: bool = False) -> Callable[[Any], Any]:
    """Options of the contract that this version does not have: refused by name, never ignored."""

    def refuse(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            raise click.UsageError(f"{param.opts[0]} is not available in this version", ctx)

    def add(function: Any) -> Any:
        for name in names:
            function = click.option(
                name, is_flag=flag, hidden=True, expose_value=False, callback=refuse, default=None
            )(function)
        return function

    return add


@click.group(cls=_Default, add_help_option=False)
@click.version_option(VERSION, prog_name="downloader")
def cli() -> None:
    """Fetch every file of a source."""


@cli.command(
    epilog="Other commands: downloader demo | serve | status DEST | verify DEST (each has --help). "
    "Sizes take k, M, G; times take ms, s, m, h.  Exit codes: 0 everything is stored; "
    "1 some files failed; 2 usage; 3 the process could not be made safe; 4 stopped early, the same "
    "command resumes; 130 interrupted, the same command resumes."
)
@click.argument("source")
@click.option("-o", "--output", metavar="DEST", default="", help="Directory; made if absent.")
@click.option("--source", "source_type", type=_Word(["server", "urls"]), help="Kind of SOURCE.")
@click.option("--list-path", default="list", show_default=True, help="Listing, under the server's prefix.")
@click.option("--get-path", default="get", show_default=True, help="Files, under the server's prefix.")
@click.option("--store", type=_Word(["files", "null"]), default="files", show_default=True)
@click.option(
    "--layout",
    type=_Word(["flat", "hashed", "mirror"]),
    default="flat",
    show_default=True,
    help="name; ab/cd/name by a hash of the name; host/path/name.",
)
@click.option("--workers", type=click.IntRange(1), help="Processes.  [usable CPUs]")
@click.option("--connections", type=click.IntRange(1), default=32, show_default=True, help="Of one worker.")
@click.option("--per-host", type=click.IntRange(1), help="Connections of one worker to one host.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Most requests a second to one host.")
@click.option("--retries", type=click.IntRange(0), default=5, show_default=True, help="Per file.")
@click.option("--backoff", type=TIME, default="0.5s", show_default=True)
@click.option("--max-retry-after", type=TIME, default="2m", show_default=True)
@click.option("--connect-timeout", type=TIME, default="10s", show_default=True)
@click.option("--read-timeout", type=TIME, default="30s", show_default=True, help="Silence.")
@click.option("--deadline", type=TIME, default="10m", show_default=True, help="Whole file, per attempt.")
@click.option("--max-size", type=SIZE, help="A larger file fails.")
@click.option("--limit", type=click.IntRange(1), help="Stop after the first N files of the source.")
@click.option("-H", "headers", multiple=True, metavar="'Name: value'", help="Header to send (repeatable).")
@click.option("--user-agent", default="")
@click.option("--netrc", is_flag=True, help="Credentials from $NETRC or ~/.netrc.")
@click.option("--auth-file", type=click.Path(), help="File with one line, user:password.")
@click.option("--proxy", metavar="URL|env", help="Proxy for all requests, or the environment's.")
@click.option("--cacert", type=click.Path(), default="", help="PEM file of CAs to trust instead.")
@click.option("--cert", type=click.Path(), default="", help="Client certificate, PEM.")
@click.option("--key", type=click.Path(), default="", help="Its key, if not in the same file.")
@click.option("--insecure", is_flag=True, help="Do not verify servers' certificates.")
@click.option("--compressed", is_flag=True, help="Ask for gzip or deflate, store decoded.")
@click.option("--redirects", type=click.IntRange(0), default=5, show_default=True)
@click.option("--allow-private-redirects", is_flag=True)
@click.option("--resume/--restart", "resume", default=True, help="Go on with DEST's journal, or forget it.")
@click.option("--retry-failed", is_flag=True, help="Only what the journal has as failed.")
@click.option("--dry-run", is_flag=True, help="List and count, store nothing.")
@click.option("--progress", type=_Word(["auto", "bar", "plain", "none"]), default="auto", show_default=True)
@click.option("--report", type=click.Path(), default="", metavar="FILE.json")
@click.option("--failures", type=click.Path(), default="", metavar="FILE.jsonl")
@click.option("--preflight", type=_Word(["auto", "probe", "off"]), default="auto", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The report on stdout as JSON.")
@click.option("-v", "verbose", count=True)
@click.option("-q", "quiet", is_flag=True)
@click.option("--log-json", is_flag=True)
@_later("--shard-size", "--shard-files", "--pipeline", "--lane", "--min-speed", "--manifest")
@_later("--engine", "--ray-address", "--url-column", "--list-format", "--endpoint-url")
@_later("--fsync", flag=True)
def fetch(**given: Any) -> int:
    """Fetch every file of SOURCE into DEST.

    SOURCE is a file server, http(s)://host[:port][/prefix]; a list of URLs, FILE.txt or FILE.txt.gz;
    or - for a list on standard input.
    """
    config = _config(given)
    if config.dry_run:
        from downloader.dryrun import dry_run

        return dry_run(config, as_json=given["as_json"])
    from downloader.report import as_text
    from downloader.run import run_job

    report = run_job(config)
    if given["as_json"]:
        _print_json(report)
    else:
        click.echo(as_text(report, _next_command(report.exit_code)))
    return report.exit_code


def _config(given: dict[str, Any]) -> Any:
    from downloader.config import Config

    if given["preflight"] == "probe":
        raise ConfigError("--preflight probe is not available in this version")
    plain = (
        "source output list_path get_path store layout connections retries backoff max_retry_after "
        "connect_timeout read_timeout deadline user_agent cacert cert key insecure compressed redirects "
        "allow_private_redirects retry_failed dry_run progress report failures preflight quiet log_json "
        "verbose"
    )
    proxies, no_proxy = _proxies(given["proxy"])
    return Config(
        **{name: given[name] for name in plain.split()},
        source_type=given["source_type"] or "",
        workers=given["workers"] or 0,
        per_host=given["per_host"] or 0,
        rate=given["rate"] or 0.0,
        max_size=given["max_size"] or 0,
        limit=given["limit"] or 0,
        headers=tuple(_header(line) for line in given["headers"]),
        netrc=_netrc() if given["netrc"] else "",
        auth=_auth(given["auth_file"]) if given["auth_file"] else None,
        proxies=proxies,
        no_proxy=no_proxy,
        restart=not given["resume"],
    )


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise ConfigError("-H: write -H 'Name: value'")
    return name.strip(), value.strip()


def _private(path: str, option: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{option}: {path} can be read by others; chmod 600 {shlex.quote(path)}")
    return path


def _netrc() -> str:
    return _private(os.environ.get("NETRC") or os.path.expanduser("~/.netrc"), "--netrc")


def _auth(path: str) -> tuple[str, str]:
    with open(_private(path, "--auth-file"), encoding="utf-8", errors="surrogateescape") as file:
        user, colon, password = file.readline().rstrip("\r\n").partition(":")
    if not colon:
        raise ConfigError(f"--auth-file: {path} does not begin with a line user:password")
    return user, password


def _proxies(option: str | None) -> tuple[dict[str, str], str]:
    if option is None:
        return {}, ""
    if option != "env":
        url = option if "://" in option else f"http://{option}"
        return {"http": url, "https": url}, ""
    found = {}
    for scheme in ("http", "https", "all"):
        # Not HTTP_PROXY in capitals: a CGI server sets it from a request's header (CVE-2016-5385).
        names = [f"{scheme}_proxy"] + ([f"{scheme}_proxy".upper()] if scheme != "http" else [])
        url = next((os.environ[name] for name in names if os.environ.get(name)), "")
        if url:
            found[scheme] = url
    return found, os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""


def _next_command(exit_code: int) -> str:
    command = f"downloader {shlex.join(_shown_argv())}"
    if exit_code == 130 or exit_code == 4:
        return f"resume with: {command}"
    if exit_code == 1:
        return f"try the failed ones again with: {command} --retry-failed"
    return ""


def _shown_argv() -> list[str]:
    """The arguments, as they can be shown: no value of -H, no credentials in a URL, no --restart."""
    shown: list[str] = []
    hide = False
    for argument in sys.argv[1:]:
        header = hide or (argument.startswith("-H") and len(argument) > 2)
        hide = argument == "-H"
        if argument not in ("--restart", "--retry-failed"):
            shown.append(f"{argument.partition(':')[0]}: …" if header else redact(argument))
    return shown


@cli.command()
@click.argument("dest")
@click.option("--json", "as_json", is_flag=True)
def status(dest: str, as_json: bool) -> int:
    """What the journal of DEST says. Exit code 0 when complete, 1 when files failed, 4 otherwise."""
    from downloader.inspection import status as read_status

    found = read_status(dest)
    if as_json:
        _print_json(found)
    else:
        click.echo(
            f"{found.source} → {dest}: {'complete' if found.complete else 'not complete'}\n"
            f"  listed   {found.listed:,}{'' if found.source_read else ' so far'}\n"
            f"  stored   {found.stored:,}  ({found.bytes:,} bytes)\n"
            f"  failed   {found.failed:,}\n"
            f"  pending  {found.pending:,}"
        )
        for code, count in found.failed_by_error.items():
            click.echo(f"           {count:,}  {code}")
    if found.complete:
        return 0
    return 1 if found.source_read and not found.pending else 4


@cli.command()
@click.argument("dest")
@click.option("--json", "as_json", is_flag=True)
@click.option("-q", "quiet", is_flag=True)
def verify(dest: str, as_json: bool, quiet: bool) -> int:
    """Whether the files in DEST agree with its journal: size and checksum of each.

    What is missing or changed is named and written down as failed; the command that made DEST then
    fetches it again. Exit code 0 when all agree, 1 when not.
    """
    from downloader.core.naming import shown
    from downloader.inspection import verify as check

    found = check(dest, quiet)
    if as_json:
        _print_json(found)
    else:
        for name in found.damaged:
            click.echo(f"damaged: {shown(name)}")
        click.echo(f"{found.agree:,} of {found.checked:,} files agree with the journal")
    return 1 if found.damaged_count else 0


@cli.command()
@click.option("--files", type=click.IntRange(0, 10**9), default=1000, show_default=True)
@click.option(
    "--size",
    type=_Parsed("size", lambda text: parse_range(text, parse_size)),
    default="100",
    show_default=True,
    metavar="N|MIN-MAX",
)
@click.option("--page", type=click.IntRange(1), default=1000, show_default=True, help="Names a page.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="[any free one]")
@click.option("--tls", is_flag=True)
@click.option(
    "--delay",
    type=_Parsed("time", lambda text: parse_range(text, parse_time)),
    default="0",
    show_default=True,
    metavar="T|MIN-MAX",
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True)
@click.option("--next-file", is_flag=True, help="Spell the marker NextFile, as the talk's slides do.")
def serve(**given: Any) -> int:
    """A file server of the kind that SOURCE can be, with any number of made-up files.

    Prints `listening http://HOST:PORT` when it is ready, with --tls also `ca FILE`; stops on SIGTERM.
    """
    from downloader.devserver.server import serve as run_server
    from downloader.devserver.settings import Settings

    given["next_file_alias"] = given.pop("next_file")
    run_server(Settings(**given), click.echo)
    return 0


@cli.command()
@click.option("--files", type=click.IntRange(1), default=20_000, show_default=True)
@click.option("-o", "--output", default="demo-files", show_default=True, metavar="DEST")
def demo(files: int, output: str) -> int:
    """Start a TLS file server on loopback, download from it, verify every byte, show the report."""
    from downloader.demo import run_demo

    return run_demo(files, output)


def _print_json(record: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(record).decode())


def _one_line(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    if isinstance(error, click.NoSuchOption) or "Did you mean" in text:
        text = text.replace("No such option:", "no such option:")
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "downloader"
    return f"{text[:1].lower() + text[1:]} ({command} --help lists what there is)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        result = cli.main(arguments, prog_name="downloader", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        _complain(_one_line(error))
        return ConfigError.exit_code
    except DownloaderError as error:
        if "-vv" in arguments:
            traceback.print_exc()
        _complain(redact(str(error)))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted")
        return 130
    except BrokenPipeError:
        # Nobody reads our results; say nothing more, and not on exit either.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DownloaderError.exit_code


def _complain(text: str) -> None:
    click.echo(f"downloader: error: {' '.join(text.split())}", err=True)
