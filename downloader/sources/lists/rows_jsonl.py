"""Parse lists of one JSON object a line (JSON Lines)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from downloader.sources.lines import Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["JsonlParser"]

_LONGEST = 1 << 20


class JsonlParser:
    """See ``Parser``. The columns are the keys of the objects, which may differ from line to line."""

    unit = "line"
    longest = _LONGEST
    comment = b""
    columns: Columns | None = None
    fixed = False

    def __init__(self) -> None:
        self._needed: list[str] = []
        self._left_out: set[str] = set()
        self._keeps_all = False
        self._decode: Callable[[bytes], Any] = msgspec.json.decode

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``."""
        names: dict[str, None] = {}
        for line in sample:
            try:
                names |= dict.fromkeys(msgspec.json.decode(line, type=dict[str, Any]))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # a row of its own will say so, or the sample ends here
        return list(names)

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""
        self._needed = columns.needed
        self._keeps_all = columns.keep is None
        self._left_out = {columns.url, columns.header}
        if self._keeps_all:
            self._decode = msgspec.json.Decoder(dict[str, Any]).decode
            return
        # Values of other keys are not made.
        row = msgspec.defstruct(
            "Row",
            [(f"c{index}", Any, None) for index in range(len(self._needed))],
            rename={f"c{index}": name for index, name in enumerate(self._needed)},
            gc=False,
        )
        self._decode = msgspec.json.Decoder(row).decode

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""

    def table(self, lines: Numbered, following: Callable[[], bytes], more: Callable[[], Numbered]) -> Table:
        """See ``Parser``."""
        decode = self._decode
        numbers: list[int] = []
        rows: list[Any] = []
        faults: dict[int, str] = {}
        for number, line in lines:
            try:
                rows.append(decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if not line.strip():
                    continue
                faults[len(rows)] = _why(line, error)
                rows.append(None)
            numbers.append(number)
        if self._keeps_all:
            columns = {name: [row.get(name) if row else None for row in rows] for name in self._needed}
            extra = [{k: v for k, v in (row or {}).items() if k not in self._left_out} for row in rows]
            return Table(numbers, columns, faults, extra)
        columns = {
            name: [getattr(row, f"c{index}", None) for row in rows]
            for index, name in enumerate(self._needed)
        }
        return Table(numbers, columns, faults)


def _why(line: bytes, error: Exception) -> str:
    if len(line) >= _LONGEST and not line.endswith(b"\n"):
        return f"longer than {_LONGEST >> 20} MiB"
    if isinstance(error, msgspec.ValidationError):
        return "not a JSON object"
    # The message of msgspec has a position, and no content of the line.
    return "not valid UTF-8" if isinstance(error, UnicodeDecodeError) else "not valid JSON"
