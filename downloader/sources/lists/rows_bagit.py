"""Parse the fetch.txt of a bag (RFC 8493, section 2.2.3): URL, length and path of each file.

If payload manifests stand beside it, the strongest of them gives the checksums.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from downloader.core.naming import shown as shorten
from downloader.errors import ConfigError, SourceError
from downloader.process.long_work import give_way
from downloader.sources.compression import READ_ERRORS, open_stream
from downloader.sources.lines import LONGEST_LINE, TOO_LONG, Lines, is_cut
from downloader.sources.lists.bag_manifests import BagManifests, Unlisted, bag_path, fields_of, tag_files
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import NO_FIELDS
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["BagitParser", "check_bag"]

_REST = 1000  # lines after which heartbeats may continue


class BagitParser:
    """See ``Parser``. ``path`` is that of fetch.txt, ``-`` if it is read from standard input.

    ``checksums``: use those of the manifests beside it. Raises ConfigError where these cannot be right.
    """

    unit = "line"
    longest = LONGEST_LINE
    comment = b""
    row: re.Pattern[bytes] | None = None
    cr_ends = True
    columns: Columns | None
    fixed = True
    fields = NO_FIELDS
    cause = ""

    def __init__(self, path: str, *, checksums: bool = True) -> None:
        self._path = path
        self._tags = tag_files(path)
        below = "data/" if self._tags.found else ""
        self.columns = Columns("url", "path", "length", (("", "checksum"),), literal=True, below=below)
        self._manifests = BagManifests(path, self._tags) if checksums else None

    def close(self) -> None:
        """See ``Parser``."""
        if self._manifests is not None:
            self._manifests.close()

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``."""
        return ()

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""

    def kinds(self, sample: Callable[[], Sequence[bytes]], columns: Columns) -> dict[str, str]:
        """See ``Parser``."""
        return {}

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""

    def table(self, lines: Numbered, following: Callable[[], bytes], more: Callable[[], Numbered]) -> Table:
        """See ``Parser``. Raises SourceError if a manifest lacks a file."""
        numbers: list[int] = []
        rows: list[tuple[str, str, str]] = []
        checksums: list[str | None] = []
        faults: dict[int, str] = {}
        for number, line in lines:
            fields = fields_of(line, self._tags.encoding)
            if not fields:
                continue
            path, checksum = "", None
            if is_cut(line):
                faults[len(rows)] = TOO_LONG
                fields = [fields[0], "-", ""]
            elif len(fields) < 3:
                faults[len(rows)] = "not a URL, a length and a path"
                fields = [fields[0], "-", ""]
            elif self._manifests is None:
                path = bag_path(fields[2], percent=self._tags.strict)
            else:
                try:
                    path, checksum = self._manifests.find(fields[2])
                except Unlisted as error:
                    raise SourceError(f"{shorten(self._path)}: line {number}: {error}") from None
            numbers.append(number)
            rows.append((fields[0], fields[1], path or fields[2]))
            checksums.append(checksum)
        columns: dict[str, Sequence[Any]] = {
            "url": [url for url, _, _ in rows],
            "length": [None if length == "-" else length for _, length, _ in rows],
            "path": [path for _, _, path in rows],
            "checksum": checksums,
        }
        return Table(numbers, columns, faults)


def check_bag(path: str, shown: str) -> None:
    """Check that the payload manifests beside the list ``path`` have every file that it has.

    ``shown`` is its name in messages. Raises ConfigError.
    """
    tags = tag_files(path)
    number = 0
    # Where the list cannot be read is told when its rows are.
    with (
        contextlib.closing(BagManifests(path, tags)) as manifests,
        contextlib.suppress(SourceError, *READ_ERRORS),
    ):
        if not manifests:
            return
        stream, _ = open_stream(path, shown, cr_ends=True)
        with contextlib.closing(stream):
            while line := stream.readline(LONGEST_LINE):
                number += 1
                if is_cut(line):  # its row fails
                    while line and line[-1:] != b"\n":
                        line = stream.readline(LONGEST_LINE)
                elif len(fields := fields_of(line, tags.encoding)) == 3:
                    try:
                        manifests.find(fields[2])
                    except Unlisted as error:
                        raise ConfigError(f"{shown}: line {number}: {error}") from None
                if not number % _REST:
                    give_way()
