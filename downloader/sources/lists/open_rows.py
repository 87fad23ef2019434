"""Open a file of a list as rows, by its format. Modules of formats are imported when they are needed."""

from __future__ import annotations

from downloader.sources.lists.columns import Wanted
from downloader.sources.lists.files import ListFile
from downloader.sources.lists.rows import Parser, Rows

__all__ = ["open_rows"]


def open_rows(file: ListFile, shown: str, wanted: Wanted) -> Rows:
    """Return the rows of ``file``, whose name in messages is ``shown``.

    Raises SourceError if it cannot be read, ConfigError if a column is missing.
    """
    if file.form == "parquet":
        from downloader.sources.lists.binary_rows import BinaryRows
        from downloader.sources.lists.rows_parquet import ParquetBlocks

        return BinaryRows(file.path, shown, ParquetBlocks(file.path, shown), wanted)
    if file.form == "arrow":
        from downloader.sources.lists.binary_rows import BinaryRows
        from downloader.sources.lists.rows_arrow import ArrowBlocks

        return BinaryRows(file.path, shown, ArrowBlocks(file.path, shown), wanted)
    from downloader.sources.lists.text_rows import TextRows

    return TextRows(file.path, shown, _parser(file, shown, wanted), wanted)


def _parser(file: ListFile, shown: str, wanted: Wanted) -> Parser:
    if file.form in ("csv", "tsv"):
        from downloader.sources.lists.rows_csv import CsvParser

        return CsvParser(shown, "," if file.form == "csv" else "\t", header=not wanted.positions)
    if file.form == "jsonl":
        from downloader.sources.lists.rows_jsonl import JsonlParser

        return JsonlParser()
    if file.form == "aria2":
        from downloader.sources.lists.rows_aria2 import Aria2Parser

        return Aria2Parser()
    if file.form == "bagit":
        from downloader.sources.lists.rows_bagit import BagitParser

        return BagitParser(file.path)
    from downloader.sources.lists.rows_txt import TxtParser

    return TxtParser()
