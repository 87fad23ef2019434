"""Parse a list of one URL a line; blank lines and lines that begin with ``#`` are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from downloader.sources.lines import LONGEST_LINE, Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import NO_FIELDS
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["TxtParser"]


class TxtParser:
    """See ``Parser``."""

    unit = "line"
    longest = LONGEST_LINE
    comment = b"#"
    cr_ends = False
    columns: Columns | None = Columns("url", whole_lines=True)
    fixed = True
    fields = NO_FIELDS

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
        numbers = [number for number, _ in kept]
        urls = [text.decode("utf-8", "surrogateescape") for _, text in kept]
        return Table(numbers, {"url": urls})
