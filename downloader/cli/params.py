"""Extend click: own value parsers, spelling suggestions, options refused by name, and help pages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import click

from downloader._version import VERSION
from downloader.config.extensions import Extensions
from downloader.config.option import Option
from downloader.config.options import OPTIONS, SECTIONS
from downloader.config.sink_kinds import SINK_KINDS
from downloader.config.source_kinds import SOURCE_KINDS
from downloader.core.units import parse_count
from downloader.errors import ConfigError
from downloader.reporting.console import say

__all__ = [
    "SOURCE_OPTION",
    "STORE_OPTION",
    "Command",
    "Fetch",
    "Parsed",
    "Root",
    "count",
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


def count(minimum: int, maximum: int) -> Parsed:
    """Return the type of a whole number from ``minimum`` to ``maximum``."""
    return Parsed("n", lambda text: parse_count(text, minimum, maximum))


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

# What stands behind these in the help: the options of the kinds.
_FOLLOWED_BY: Final = {"source_type": SOURCE_OPTION, "store": STORE_OPTION}
_KINDS: Final[dict[str, Extensions[Any]]] = {"source_type": SOURCE_KINDS, "store": SINK_KINDS}


def _type_of(row: Option) -> click.ParamType[Any]:
    if row.name in _KINDS:
        return Name(_KINDS[row.name], row.later)
    if row.words:
        return Word(row.words)
    return click.Path() if row.is_path else Parsed(row.metavar, row.type)


def _option_of(row: Option, prefix: str = "") -> click.Option:
    """Return the command line option of ``row``."""
    names = [*(row.written or row.flag).split(), prefix + row.name]
    if row.written.startswith("--resume/"):
        return click.Option(["--resume/--restart", "resume"], default=True, help=row.help)
    if row.is_count:
        return click.Option(names, count=True, help=row.help)
    if row.default is False or row.is_flag:
        return click.Option(names, is_flag=True, default=False, help=row.help)
    words = "|".join(row.words) if row.metavar == "TEXT" and row.words else row.metavar
    default = row.shown or row.default
    shown: dict[str, Any] = {"default": default, "show_default": True} if default else {}
    return click.Option(
        names,
        type=_type_of(row),
        metavar=None if row.name in _KINDS else words,
        multiple=row.repeatable,
        help=row.help,
        **shown,
    )


class Fetch(Command):
    """The default command; its help is the help of the program."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.params += [_option_of(row) for row in OPTIONS if row.section]

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
        for section in SECTIONS:
            names = [row.name for row in OPTIONS if row.section == section]
            shown = []
            for name in names:
                shown.append(records.pop("resume" if name == "restart" else name))
                if prefix := _FOLLOWED_BY.get(name):
                    added = [each for each in records if each and each.startswith(prefix)]
                    shown += [records.pop(each) for each in added]
            if section == SECTIONS[-1]:
                # --json, and --help, whose name differs between versions of click.
                shown += records.values()
            with formatter.section(section):
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
