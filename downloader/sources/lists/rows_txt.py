"""Parse a list of one URL a line; blank lines and lines that begin with ``#`` are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from downloader.sources.lines import LONGEST_LINE, TOO_LONG, Lines, is_cut
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import NO_FIELDS
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["TxtParser"]

_line = itemgetter(1)
# The beginning of one that is no comment, and not blank, unless it is too long.
_ROW: Final = re.compile(rb"\n(?:[ \t\r\f\v]*[^\s#]|[ \t\r\f\v]{60000})")


class TxtParser:
    """See ``Parser``."""

    unit = "line"
    longest = LONGEST_LINE
    comment = b"#"
    row: re.Pattern[bytes] | None = _ROW
    cr_ends = False
    columns: Columns | None = Columns("url", whole_lines=True)
    fixed = True
    fields = NO_FIELDS
    cause = ""

    def close(self) -> None:
        """See ``Parser``."""

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``."""
        return ("url",)

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""

    def kinds(self, sample: Callable[[], Sequence[bytes]], columns: Columns) -> dict[str, str]:
        """See ``Parser``."""
        return {}

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""

    def table(self, lines: Numbered, following: Callable[[], bytes], more: Callable[[], Numbered]) -> Table:
        """See ``Parser``."""
        kept = [(number, text) for number, line in lines if (text := line.strip()) and text[0] != 35]
        faults: dict[int, str] = {}
        if max(map(len, map(_line, lines)), default=0) >= LONGEST_LINE:
            kept, faults = _with_cut(lines)
        numbers = [number for number, _ in kept]
        urls = [text.decode("utf-8", "surrogateescape") for _, text in kept]
        return Table(numbers, {"url": urls}, faults)


def _with_cut(lines: Numbered) -> tuple[Numbered, dict[int, str]]:
    """Return the URLs in ``lines``, some of which are too long, and the faults of these.

    Of such a line nobody knows the rest, so it is none of what is there of it, not even if that is blank.
    """
    kept: Numbered = []
    faults: dict[int, str] = {}
    for number, line in lines:
        text = line.strip()
        if text.startswith(b"#"):
            continue
        if is_cut(line):
            faults[len(kept)] = TOO_LONG
        if text or is_cut(line):
            kept.append((number, text))
    return kept, faults
