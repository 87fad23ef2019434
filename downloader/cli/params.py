"""Extend click: own value parsers, spelling suggestions, options refused by name, and help pages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from downloader._version import VERSION
from downloader.config.extensions import Extensions, Option
from downloader.config.sink_kinds import SINK_KINDS
from downloader.config.source_kinds import SOURCE_KINDS
from downloader.core.limits import DEEPEST_PIPELINE, MOST_CONNECTIONS
from downloader.core.units import parse_count, parse_rate, parse_size, parse_time
from downloader.errors import ConfigError
from downloader.reporting.console import say

__all__ = [
    "LIMIT",
    "SIZE",
    "SOURCE_OPTION",
    "STORE_OPTION",
    "TIME",
    "Command",
    "Fetch",
    "Name",
    "Parsed",
    "Root",
    "Word",
    "connections",
    "count",
    "pipeline",
    "rate",
    "respect",
    "verbose",
    "version_option",
]


if TYPE_CHECKING:
    _Type = click.ParamType[Any]
    _Choice = click.Choice[str]
else:  # not generic in click 8.1
    _Type = click.ParamType
    _Choice = click.Choice


class Parsed(_Type):
    """A value that one of our parsers reads; the text of its ValueError is the error message."""

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


def _limit(text: str) -> int:
    if not (size := parse_size(text)):
        raise ValueError(f"{text[:40]!r} would refuse every file; for no limit leave the option out")
    return size


SIZE = Parsed("size", parse_size)
LIMIT = Parsed("size", _limit)
TIME = Parsed("time", parse_time)


def count(minimum: int, maximum: int) -> Parsed:
    """Return the type of a whole number from ``minimum`` to ``maximum``."""
    return Parsed("n", lambda text: parse_count(text, minimum, maximum))


def pipeline(text: str) -> int:
    """Return the depth that ``auto``, ``off`` or a number stands for; 0 is auto. Raises ValueError."""
    try:
        words = {"auto": 0, "off": 1}
        return words[text] if text in words else parse_count(text, 1, DEEPEST_PIPELINE)
    except ValueError as error:
        raise ValueError(f"{error}; or auto, or off") from None


def connections(text: str) -> int:
    """Return the number that ``auto`` or a number stands for; 0 is auto. Raises ValueError."""
    try:
        return 0 if text == "auto" else parse_count(text, 1, MOST_CONNECTIONS)
    except ValueError as error:
        raise ValueError(f"{error}; or auto") from None


def respect(text: str) -> tuple[str, ...]:
    """Return the words of a comma list of what responses say. Raises ValueError."""
    words = tuple(word.strip() for word in text.split(",")) if text else ()
    for word in words:
        if word != "x-robots-tag":
            raise ValueError(f"{word[:40]!r} is not known; what can be respected is x-robots-tag")
    return words


def rate() -> Parsed:
    """Return the type of a number greater than 0."""
    return Parsed("n", parse_rate)


class Word(_Choice):
    """A choice that suggests the nearest spelling. ``later``: words that this version does not support."""

    def __init__(self, words: Sequence[str], later: Sequence[str] = ()) -> None:
        super().__init__(words)
        self._later = later

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return _one_of(str(value), self.choices, self._later, self, param, ctx)


class Name(_Type):
    """The name of a kind of source or sink, including those of installed packages."""

    name = "name"

    def __init__(self, kinds: Extensions[Any], later: Sequence[str] = ()) -> None:
        self._kinds = kinds
        self._later = later

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "|".join(self._kinds.names())

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        word = str(value)
        if self._kinds.find(word) is not None:
            return word
        return _one_of(word, self._kinds.names(), self._later, self, param, ctx)


def _one_of(
    word: str,
    words: Sequence[str],
    later: Sequence[str],
    kind: click.ParamType[Any],
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> str:
    if word in later:
        name = param.opts[0] if param else ""
        raise click.UsageError(f"{name} {word} is not available in this version", ctx)
    if word not in words:
        near = get_close_matches(word, words, 1, 0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        kind.fail(f"{word[:40]!r} is not one of {', '.join(words)}{hint}", param, ctx)
    return word


class Command(click.Command):
    """A command whose help is a result: it is an error if standard output cannot be written."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        say(ctx.get_help())
        ctx.exit()


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        say(f"downloader, version {VERSION}")
        ctx.exit()


# Console reads it from argv.
verbose = click.option("-v", "verbose", count=True, expose_value=False, help="-vv: tracebacks.")

version_option = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="The version.",
)


class Root(click.Group):
    """The command group; ``downloader SOURCE …`` is short for ``downloader fetch SOURCE …``."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            args = ["--help"]
        if args[0] not in self.commands and args[0] != "--version":
            near = get_close_matches(args[0], [name for name in self.commands if name != "fetch"], 1, 0.75)
            if near:
                raise click.UsageError(f"{args[0]!r} is no SOURCE; did you mean {near[0]}?", ctx)
            args = ["fetch", *args]
        return super().parse_args(ctx, args)


# Prefixes of the parameter names of options that belong to a kind of source or sink.
SOURCE_OPTION, STORE_OPTION = "source__", "store__"

# The options of `fetch` in the order of the help; SOURCE and STORE stand for the options of the kinds.
_SECTIONS = {
    "Source and destination": "output journal source_type SOURCE limit max_size store STORE layout "
    "resume retry_failed relist existing checksums hash fsync dry_run",
    "Concurrency, retries and timeouts": "workers connections per_host resolver dns_server pipeline lane "
    "rate retries backoff max_retry_after connect_timeout read_timeout deadline min_speed",
    "Requests": "headers user_agent netrc auth_file proxy cacert cert key insecure compressed redirects "
    "allow_private_redirects robots respect preflight",
    "Many machines": "engine ray_address slice_files scratch",
    "Progress and reports": "progress report failures manifest as_json verbose quiet log_json",
}
_LAST = "Progress and reports"


def _option_of(each: Option, prefix: str) -> click.Option:
    """Return the command line option of an extension."""
    names = [each.flag, prefix + each.name]
    if each.default is False:
        return click.Option(names, is_flag=True, default=False, help=each.help)
    return click.Option(
        names,
        type=Parsed(each.metavar, each.type),
        metavar=each.metavar,
        default=each.shown or (None if each.default == "" else each.default),
        show_default=each.default not in ("", None),
        multiple=each.repeatable,
        help=each.help,
    )


class Fetch(Command):
    """The default command; its help is the help of the program."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *self._extension_options]

    @functools.cached_property
    def _extension_options(self) -> list[click.Option]:
        """Return the options of all kinds of sources and sinks. Raises ConfigError if two have one name."""
        options: list[click.Option] = []
        taken: dict[str, Option | None] = {flag: None for param in self.params for flag in param.opts}
        for prefix, kinds in ((SOURCE_OPTION, SOURCE_KINDS), (STORE_OPTION, SINK_KINDS)):
            for kind in kinds:
                for each in kind.options:
                    if taken.get(each.flag) is each:
                        continue  # kinds may share options
                    if each.flag in taken:
                        raise ConfigError(
                            f"{each.flag} of {kind.name!r} is an option already; uninstall its package"
                        )
                    taken[each.flag] = each
                    options.append(_option_of(each, prefix))
        return options

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage("downloader", "SOURCE -o DEST [options]")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None
        }
        added = {
            word: [name for name in records if name and name.startswith(prefix)]
            for word, prefix in (("SOURCE", SOURCE_OPTION), ("STORE", STORE_OPTION))
        }
        for title, words in _SECTIONS.items():
            names = [name for word in words.split() for name in added.get(word, [word])]
            shown = [records.pop(name) for name in names]
            if title == _LAST:
                shown += records.values()  # --help, whose name differs between versions of click
            with formatter.section(title):
                formatter.write_dl(shown, col_max=28)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text("Sizes take k, M, G; times take ms, s, m, h.")
        with formatter.section("Other commands (each has --help)"):
            formatter.write_dl(
                [
                    ("downloader demo", "Start a file server, download from it, verify every byte."),
                    ("downloader serve", "Start the file server alone."),
                    ("downloader status DEST", "Show what the journal of DEST records."),
                    ("downloader verify DEST", "Compare the files in DEST with its journal."),
                ]
            )
        with formatter.section("Exit codes"):
            formatter.write_dl(
                [
                    ("0", "Everything listed is stored, or was already."),
                    ("1", "The source was read to its end, but some files failed."),
                    ("2", "Usage or configuration; nothing was started."),
                    ("3", "A process could not be made safe to run."),
                    ("4", "Stopped early (source, destination or journal); the same command resumes."),
                    ("130", "Interrupted; the same command resumes."),
                ]
            )
