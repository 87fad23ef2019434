"""Open a file of a list as rows, by its format. Modules of formats are imported when they are needed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from downloader.sources.compression import encoding_of, fed
from downloader.sources.lists.columns import Wanted
from downloader.sources.lists.files import BINARY, ListFile
from downloader.sources.lists.rows import Parser, Rows

if TYPE_CHECKING:
    from downloader.sources.lists.binary_rows import Blocks

__all__ = ["Reading", "check_file", "open_rows"]


class Reading(NamedTuple):
    """How lists are read. ``wanted``: columns. ``quoted``: quotes enclose the fields of csv and tsv.

    ``checksums``: those that a format has beside the list are used.
    """

    wanted: Wanted
    quoted: bool = True
    checksums: bool = True


def open_rows(file: ListFile, shown: str, reading: Reading) -> Rows:
    """Return the rows of ``file``, whose name in messages is ``shown``.

    Raises SourceError if it cannot be read, ConfigError if a column is missing.
    """
    if file.form in BINARY:
        from downloader.sources.lists.binary_rows import BinaryRows

        return BinaryRows(file.path, shown, _blocks(file, shown), reading.wanted)
    from downloader.sources.lists.text_rows import TextRows

    return TextRows(file.path, shown, _parser(file, shown, reading), reading.wanted)


def check_file(file: ListFile, shown: str, reading: Reading) -> dict[str, str]:
    """Check the beginning of ``file``, and what stands beside it; not its rows, of which there may be many.

    Returns the kinds of the columns to keep; see ``Rows.kinds``. Raises ConfigError where a column is
    missing, or where it is not the text that it must be; SourceError if it cannot be read.
    """
    if file.form in BINARY:
        from downloader.sources.lists.binary_rows import columns_of, kinds_of

        with contextlib.closing(_blocks(file, shown)) as blocks:
            return kinds_of(blocks, columns_of(blocks, reading.wanted, shown))
    from downloader.sources.lists.text_rows import TextRows

    parser = _parser(file, shown, reading)
    with contextlib.closing(TextRows(file.path, shown, parser, reading.wanted)) as rows:
        rows.check()
        kinds = rows.kinds()
    if file.form == "bagit" and reading.checksums:
        from downloader.sources.lists.rows_bagit import check_bag

        check_bag(file.path, shown)
    return kinds


def _blocks(file: ListFile, shown: str) -> Blocks:
    if file.form == "parquet":
        from downloader.sources.lists.rows_parquet import ParquetBlocks

        return ParquetBlocks(file.path, shown)
    from downloader.sources.lists.rows_arrow import ArrowBlocks

    return ArrowBlocks(file.path, shown)


def _parser(file: ListFile, shown: str, reading: Reading) -> Parser:
    if file.form in ("csv", "tsv"):
        from downloader.sources.lists.rows_csv import CsvParser

        delimiter = "," if file.form == "csv" else "\t"
        return CsvParser(
            shown,
            delimiter,
            header=not reading.wanted.positions,
            quoted=reading.quoted,
            convert=lambda command: fed(command, file.path, shown),
            encoding=lambda beginning: encoding_of(file.path, shown, beginning),
        )
    if file.form == "jsonl":
        from downloader.sources.lists.rows_jsonl import JsonlParser

        return JsonlParser(shown, lambda command: fed(command, file.path, shown))
    if file.form == "aria2":
        from downloader.sources.lists.rows_aria2 import Aria2Parser

        return Aria2Parser()
    if file.form == "bagit":
        from downloader.sources.lists.rows_bagit import BagitParser

        return BagitParser(file.path, checksums=reading.checksums)
    from downloader.sources.lists.rows_txt import TxtParser

    return TxtParser()
