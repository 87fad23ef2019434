"""Parse aria2's input file: mirrors of a file separated by tabs, then indented lines with its options.

The format is that of aria2's manual, "Input File". ``out``, ``dir``, ``checksum`` and ``header`` are
used; other options are about aria2's way to fetch, and are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from downloader.core.naming import shown
from downloader.sources.lines import LONGEST_LINE, TOO_LONG, Lines, is_cut
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import NO_FIELDS
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["Aria2Parser"]

_LONGEST_OPTIONS = LONGEST_LINE  # bytes of those of a file
_MOST_NAMED = 10  # options that are ignored
_BETWEEN = b" \t#\r\n"  # how a line begins that is not the next file
_ALGORITHMS = {"sha-1": "sha1", "sha-224": "sha224", "sha-256": "sha256", "sha-384": "sha384"}
_ALGORITHMS |= {"sha-512": "sha512", "md5": "md5"}


class Aria2Parser:
    """See ``Parser``. A file's row has the number of its first line."""

    unit = "line"
    longest = LONGEST_LINE
    comment = b"#"
    row: re.Pattern[bytes] | None = None
    cr_ends = False
    columns: Columns | None = Columns(
        "url", "out", checksums=(("", "checksum"),), header="header", mirrors="mirrors"
    )
    fixed = True
    fields = NO_FIELDS
    cause = ""

    def __init__(self) -> None:
        self._ignored: set[str] = set()

    def close(self) -> None:
        """See ``Parser``."""

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
        """See ``Parser``."""
        lines, size = list(lines), 0
        while lines and size <= _LONGEST_OPTIONS:
            if not (next_byte := following()) or next_byte not in _BETWEEN or not (got := more()):
                break
            lines += got
            size += sum(len(line) for _, line in got)
        rows: list[tuple[int, list[str], dict[str, list[str]]]] = []
        faults: dict[int, str] = {}
        size = 0
        for number, line in lines:
            text = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
            if not text.strip() or text.startswith("#"):
                continue
            if text[0] not in " \t":
                rows.append((number, [url for url in text.split("\t") if url.strip()], {}))
                size = 0
            size += len(line)
            if rows and is_cut(line):
                faults[len(rows) - 1] = f"line {number} is {TOO_LONG}"
            if text[0] not in " \t":
                continue
            name, equals, value = text.strip().partition("=")
            if rows and size > _LONGEST_OPTIONS:
                faults.setdefault(len(rows) - 1, f"the options of a file are {TOO_LONG}")
            elif not rows:
                faults[0] = f"the option {shown(name)} has no URL before it"
                rows.append((number, [], {}))
            elif not equals:
                faults[len(rows) - 1] = f"line {number} is indented, and no NAME=VALUE"
            else:
                rows[-1][2].setdefault(name.strip(), []).append(value.strip())
        columns: dict[str, Sequence[Any]] = {
            "url": [urls[0] if urls else "" for _, urls, _ in rows],
            "mirrors": [tuple(url.strip() for url in urls[1:]) for _, urls, _ in rows],
            "out": [_path(options) for _, _, options in rows],
            "checksum": [_checksum(options.get("checksum", [""])[-1]) for _, _, options in rows],
            "header": [options.get("header") for _, _, options in rows],
        }
        note = self._note([options for _, _, options in rows])
        return Table([number for number, _, _ in rows], columns, faults, note=note)

    def _note(self, rows: list[dict[str, list[str]]]) -> str:
        """Return what to say about ignored options that occur for the first time."""
        fresh: list[str] = []
        for options in rows:
            for name in options:
                if name not in ("out", "dir", "checksum", "header") and name not in self._ignored:
                    if len(self._ignored) == _MOST_NAMED:
                        self._ignored.add("")
                        fresh.append("…")
                    elif len(self._ignored) < _MOST_NAMED:
                        self._ignored.add(name)
                        fresh.append(shown(name))
        if not fresh:
            return ""
        return f"these options of aria2 in the list are ignored: {', '.join(fresh)}"


def _path(options: dict[str, list[str]]) -> tuple[str, str] | str:
    """Return directory and name; the name is "" if the URL gives it."""
    directory = "/".join(part for part in options.get("dir", [""])[-1].split("/") if part not in ("", "."))
    out = options.get("out", [""])[-1]
    return (directory, out) if directory else out


def _checksum(text: str) -> str:
    """Return ALGORITHM:DIGEST for aria2's TYPE=DIGEST."""
    kind, equals, digest = text.partition("=")
    return f"{_ALGORITHMS.get(kind.lower(), kind)}:{digest.strip().lower()}" if equals else text
