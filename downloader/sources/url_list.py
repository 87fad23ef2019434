"""Define the kind of source that is a list of URLs: files of many formats, or standard input."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from zlib import crc32

from downloader.config.extensions import Option, one_of
from downloader.config.sink_kinds import StoresColumns
from downloader.config.source_kinds import refuse_later
from downloader.errors import ConfigError, SourceError
from downloader.sources.lists.files import (
    FORMATS,
    WITH_COLUMNS,
    ListFile,
    find_files,
    is_list,
    is_pattern,
    may_be_in,
)

if TYPE_CHECKING:  # the command line loads every kind, for its help
    from downloader.config.config import Config
    from downloader.core.identity import Identity
    from downloader.sources.lists.columns import Wanted
    from downloader.sources.source import Fetching, Lister, RequestBuilder

__all__ = ["KIND", "UrlList"]

_ON_DUPLICATE: Final = ("fail", "skip", "number")
_QUOTES: Final = ("double", "none")


def _checksum_column(text: str) -> str:
    from downloader.sources.lists.columns import parse_checksum_column

    parse_checksum_column(text)
    return text


class UrlList:
    """The kind of ``UrlLister``; see ``SourceKind``.

    SOURCE is a path, a glob pattern, a directory, or ``-`` for standard input.
    """

    name = "urls"
    form = (
        "a list of URLs (.txt, .csv, .tsv, .jsonl, .parquet, .arrow; text also .gz, .zst), "
        "nor - for a list on standard input"
    )
    options: tuple[Option, ...] = (
        Option(
            name="list_format",
            metavar="|".join(FORMATS),
            type=one_of(FORMATS),
            help="Format of the list, whatever its name is.  [by suffix; txt for -]",
        ),
        Option(name="url_column", metavar="NAME", default="url", help="Column with the URLs."),
        Option(
            name="name_column",
            metavar="NAME",
            default="name",
            help="Column with the names, which may be paths; where it has none, the URL gives it.",
        ),
        Option(
            name="size_column",
            metavar="NAME",
            default="size",
            help="Column with the sizes, which are verified.",
        ),
        Option(
            name="checksum_column",
            metavar="ALG=NAME",
            type=_checksum_column,
            help="Column with checksums to verify.  [sha256, sha1, md5, crc32c by their names]",
        ),
        Option(
            name="header_column",
            metavar="NAME",
            help="Column with header fields of each request, as a JSON object; never logged.",
        ),
        Option(
            name="keep_columns",
            metavar="A,B|all",
            repeatable=True,
            help="Columns that are kept with each file, for manifests and shards (repeatable).",
        ),
        Option(
            name="quote",
            metavar="|".join(_QUOTES),
            default="double",
            type=one_of(_QUOTES),
            help="csv, tsv: what quotes are: double ones enclose a field; none: they are text.",
        ),
        Option(name="no_header", default=False, help="csv, tsv: no header; columns are named 1, 2, …"),
        Option(
            name="on_duplicate",
            metavar="|".join(_ON_DUPLICATE),
            default="fail",
            type=one_of(_ON_DUPLICATE),
            help="What to do with the second item of a name.",
        ),
    )
    editable = True
    reads_files = True
    unique_names = False
    cursors_last = False

    def matches(self, source: str) -> bool:
        """Return whether ``source`` is ``-``, or a path, a pattern or a directory of lists."""
        return source == "-" or is_list(source)

    def check(self, config: Config) -> None:
        """Check the options. Raises ConfigError."""
        refuse_later(config.source)
        for option in self.options:
            value = config.source_option(option.name)
            if option.type is str or value == option.default:
                continue
            if not isinstance(value, str):
                raise ConfigError(f"{option.flag}: {value!r} is not text")
            try:
                option.type(value)
            except ValueError as error:
                raise ConfigError(f"{option.flag}: {error}") from None
        if config.source_option("checksum_column").startswith("crc32c="):
            from downloader.sources.lists.requirements import require_crc32c

            require_crc32c("--checksum-column")
        if config.layout == "mirror" and config.source_option("name_column") != "name":
            raise ConfigError("--name-column and --layout mirror both name the files; give one of the two")

    def check_files(self, config: Config) -> None:
        """Check that the list can be read, and more than once unless it is standard input.

        Raises ConfigError.
        """
        from downloader.sources.lists.requirements import require

        files = _files(config)
        # Of a bag, only its fetch.txt is read.
        is_bag = [file.form for file in files] == ["bagit"]
        several = is_pattern(config.source) or os.path.isdir(config.source)
        local = config.output and not config.is_bucket
        below = not config.sink_kind.shard_items(config)  # shards lie in DEST itself
        if several and local and not is_bag and may_be_in(config.source, config.output, below=below):
            raise ConfigError(
                "-o: the lists are looked for in DEST, or below it; what is stored there would be listed. "
                "Give another DEST, or move the lists"
            )
        self._check_columns(config, {file.form for file in files})
        for file in files:
            require(file)

    def _check_columns(self, config: Config, forms: set[str]) -> None:
        """Raise ConfigError for options about columns where the list has none."""
        for option in self.options:
            about_columns = option.name.endswith(("_column", "_columns"))
            given = config.source_option(option.name) != option.default
            if given and about_columns and not forms & WITH_COLUMNS:
                kept = set(str(config.source_option(option.name)).split(","))
                # Those of --member are kept, whether or not the other option names them.
                of_members = option.name == "keep_columns" and kept <= set(_wanted(config).members)
                flag = "--member" if of_members else option.flag
                raise ConfigError(
                    f"{flag} is for lists with columns, not for {' and '.join(sorted(forms))}; "
                    "leave it out, or name the format with --list-format"
                )
        for name, default in (("no_header", False), ("quote", "double")):
            if config.source_option(name) != default and not forms & {"csv", "tsv"}:
                raise ConfigError(f"--{name.replace('_', '-')} is for lists in csv and tsv")

    def own_files(self, config: Config) -> tuple[tuple[str, str], ...]:
        """Return the files of the list, unless it is standard input; of a bag, its manifests, too."""
        found = []
        for file in _files(config):
            if file.path != "-":
                found.append(("the list of URLs", file.path))
            if file.form == "bagit" and file.path != "-":
                from downloader.sources.lists.bag_files import files_beside

                found += [("of the bag", path) for path in files_beside(file.path)]
        return tuple(found)

    def identity(self, config: Config) -> Identity:
        """Return the identity that all lists share: each cursor has a checksum of what was read."""
        from downloader.core.identity import identify_list

        return identify_list()

    def lister(self, config: Config, fetching: Fetching, name_key: bytes) -> Lister:
        """Return a UrlLister."""
        from downloader.sources.lists.open_rows import Reading
        from downloader.sources.url_lister import UrlLister

        quote = config.source_option("quote")
        reading = Reading(_wanted(config), quote != "none", config.checksums != "off")
        try:
            files = _files(config)
        except ConfigError as error:
            # The files were there when the run began.
            raise SourceError(str(error)) from None
        in_shards = config.sink_kind.shard_items(config) > 0
        return UrlLister(
            files,
            "standard input" if config.source == "-" else config.shown_source,
            reading,
            name_key,
            options=_identify_options(config),
            mirror=config.layout == "mirror",
            colon=config.colon,
            full=in_shards,
            # In shards no file has the name, and what is thrown away has none.
            cut=in_shards or not config.sink_kind.keeps,
            literal=config.naming > 2 and not in_shards,
            naming=config.naming,
        )

    def request_builder(self, config: Config) -> RequestBuilder:
        """Return a builder for items that have their URLs."""
        from downloader.sources.plain_requests import PlainRequests

        return PlainRequests("")


KIND = UrlList()


def _files(config: Config) -> list[ListFile]:
    form = config.source_option("list_format")
    if config.source == "-":
        return [ListFile("-", form or "txt")]
    return find_files(config.source, form, (config.report, config.failures, config.manifest))


def _identify_options(config: Config) -> int:
    """Return the CRC-32 of the options that decide what a row means.

    Other header fields, or other columns to keep, make no other files. An option that earlier versions did
    not have counts only where it is given.
    """
    wanted = _wanted(config)._replace(header="", keep="", members=(), idle=())
    deciding: tuple[object, ...] = (config.source_option("list_format"), wanted)
    if (quote := config.source_option("quote")) != "double":
        deciding += (quote,)
    # Without the fields that Wanted had not when the first jobs were begun, which go on.
    return crc32(repr(deciding).replace(", members=(), idle=()", "").encode("utf-8", "replace"))


def _wanted(config: Config) -> Wanted:
    from downloader.sources.lists.columns import RECOGNIZED, Wanted, parse_checksum_column

    checksum = config.source_option("checksum_column")
    sink = config.sink_kind
    return Wanted(
        url=config.source_option("url_column"),
        name=config.source_option("name_column"),
        size=config.source_option("size_column"),
        checksum=parse_checksum_column(checksum) if checksum else None,
        header=config.source_option("header_column"),
        keep=config.source_option("keep_columns"),
        positions=config.source_option("no_header"),
        members=tuple(dict.fromkeys(sink.columns(config))) if isinstance(sink, StoresColumns) else (),
        idle=("name",) * (config.layout == "mirror") + RECOGNIZED * (config.checksums == "off"),
    )
