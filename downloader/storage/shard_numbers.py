"""Number the shards of a job, in the journal.

A batch has one shard, numbered in the order of the source. Items of it that are fetched again later go into
another, behind all others, since a published shard is not changed.
"""

from __future__ import annotations

from downloader.storage.table import Rows

__all__ = ["ShardNumbers"]


class ShardNumbers:
    """The shards of all batches. Every method raises JournalError if SQLite fails.

    ``of_slice``: they are a part of the shards of a larger job, and have no others behind them.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._start = 0
        self.of_slice = False

    def begin_slice(self, start: int) -> None:
        """Number the shards of a slice from ``start`` on."""
        self._start, self.of_slice = start, True

    def of(self, seq: int) -> tuple[int, ...]:
        """Return the shards of batch ``seq``, the first one first."""
        return tuple(row[0] for row in self._rows.select("shard", "WHERE seq = ? ORDER BY number", seq))

    def first(self, seq: int) -> tuple[int, ...]:
        """Return the shard of batch ``seq``, which is open, as a tuple; number it if it has none."""
        return self.of(seq) or (self._add(seq),)

    def again(self, seq: int) -> tuple[int, int]:
        """Return the first shard of batch ``seq``, and the one for items that are fetched again."""
        rows = list(self._rows.select("shard", "WHERE seq = ? ORDER BY number", seq))
        if len(rows) > 1 and not rows[-1][2]:
            return rows[0][0], rows[-1][0]  # nothing was published in it
        return (rows[0][0] if rows else self._add(seq)), self._add(seq)

    def finish(self, seq: int) -> None:
        """Record that the last shard of batch ``seq``, if it has any, is published."""
        row = self._rows.find("shard", "WHERE seq = ? ORDER BY number DESC LIMIT 1", seq)
        if row is not None and not row[2]:
            self._rows.put("shard", row[0], seq, 1)

    def finished(self) -> list[int]:
        """Return the shards whose outcome the journal has, in order; none is ever taken out of a job."""
        return [row[0] for row in self._rows.select("shard", "WHERE done = 1 ORDER BY number")]

    def is_finished(self, number: int) -> bool:
        """Return whether the journal has the outcome of shard ``number``."""
        row = self._rows.find("shard", "WHERE number = ?", number)
        return row is None or bool(row[2])

    def _add(self, seq: int) -> int:
        last = self._rows.find("shard", "ORDER BY number DESC LIMIT 1")
        number = self._start if last is None else int(last[0]) + 1
        self._rows.add("shard", number, seq, 0)
        return number
