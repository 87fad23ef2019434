"""Number the shards of a job, in the journal.

A batch has one shard, numbered in the order of the source. Items of it that are fetched again later go into
another, behind all others, since a published shard is not changed. One that ``verify`` has found damaged is
published anew under its own number, with all items of it.
"""

from __future__ import annotations

from collections.abc import Collection

from downloader.storage.schema import SHARD, ShardRow
from downloader.storage.table import Rows

__all__ = ["ShardNumbers"]

_OPEN, _DONE, _DAMAGED = range(3)


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

    def inspect(self, *, expected: bool) -> None:
        """Raise JournalError if a row is missing or cannot be; ``expected``: the job is one of shards.

        No number is left out or taken twice, and no batch is done without a shard but one without items.
        """
        rows = self._rows
        if not rows.has(SHARD):
            return
        rows.inspect(SHARD)
        count, first, last, wrong = rows.figures(
            "SELECT count(*), min(number), max(number), "
            f"sum(sum != row_sum(number, seq, done) OR done NOT BETWEEN {_OPEN} AND {_DAMAGED}) FROM shard"
        )
        if wrong:
            raise rows.damaged(f"{wrong} rows of its shards are not what was written")
        if not (count or expected):
            return
        (without,) = rows.figures(
            "SELECT count(*) FROM batch WHERE done = 1 AND count > 0 AND seq NOT IN (SELECT seq FROM shard)"
        )
        if without or (count and (first < 0 or last - first + 1 != count)):
            raise rows.damaged("it does not say which shards there are")

    def of(self, seq: int) -> tuple[int, ...]:
        """Return the shards of batch ``seq``, the first one first."""
        return tuple(row.number for row in self._rows.select(SHARD, "WHERE seq = ? ORDER BY number", seq))

    def any(self) -> bool:
        """Return whether there are shards: the job is one of them, and has listed items."""
        return self._rows.has(SHARD) and self._rows.find(SHARD, "LIMIT 1") is not None

    def first(self, seq: int) -> tuple[int, ...]:
        """Return the shard of batch ``seq``, which is open, as a tuple; number it if it has none."""
        return self.of(seq) or (self._add(seq),)

    def again(self, seq: int) -> tuple[int, int]:
        """Return the first shard of batch ``seq``, and the one for items that are fetched again."""
        rows = list(self._rows.select(SHARD, "WHERE seq = ? ORDER BY number", seq))
        for number, _, state in rows:
            if state == _DAMAGED:
                return rows[0].number, number
        if len(rows) > 1 and rows[-1].done == _OPEN:
            return rows[0].number, rows[-1].number  # nothing was published in it
        return (rows[0].number if rows else self._add(seq)), self._add(seq)

    def finish(self, seq: int) -> None:
        """Record that the shard of batch ``seq`` that ``again`` or ``first`` gave is published."""
        row = self._rows.find(SHARD, f"WHERE seq = ? AND done = {_DAMAGED} ORDER BY number LIMIT 1", seq)
        row = row or self._rows.find(SHARD, "WHERE seq = ? ORDER BY number DESC LIMIT 1", seq)
        if row is not None and row.done != _DONE:
            self.settle(seq, row.number)

    def settle(self, seq: int, number: int) -> None:
        """Record that the journal has the outcome of shard ``number`` of batch ``seq``."""
        self._rows.put(SHARD, ShardRow(number, seq, _DONE))

    def reopen(self, seq: int, numbers: Collection[int]) -> None:
        """Record that these shards of batch ``seq``, which were published, are damaged."""
        for number in numbers:
            self._rows.put(SHARD, ShardRow(number, seq, _DAMAGED))

    def damaged_of(self, seq: int) -> list[int]:
        """Return the shards of batch ``seq`` that are damaged."""
        where = f"WHERE seq = ? AND done = {_DAMAGED} ORDER BY number"
        return [row.number for row in self._rows.select(SHARD, where, seq)]

    def damaged(self, *, superseded: bool) -> list[int]:
        """Return the shards that are damaged, in order: ``superseded``, or to be published anew.

        A superseded one has no item that is to be fetched again: another shard of its batch has them.
        """
        those = "NOT IN" if superseded else "IN"
        where = f"WHERE done = {_DAMAGED} AND seq {those} (SELECT seq FROM failure) ORDER BY number"
        return [row.number for row in self._rows.select(SHARD, where)]

    def finished(self) -> list[int]:
        """Return the shards whose outcome the journal has, in order; none is ever taken out of a job."""
        return [row.number for row in self._rows.select(SHARD, f"WHERE done = {_DONE} ORDER BY number")]

    def is_finished(self, number: int) -> bool:
        """Return whether the journal has the outcome of shard ``number``."""
        row = self._rows.find(SHARD, "WHERE number = ?", number)
        return row is None or row.done == _DONE

    def _add(self, seq: int) -> int:
        last = self._rows.find(SHARD, "ORDER BY number DESC LIMIT 1")
        number = self._start if last is None else last.number + 1
        self._rows.add(SHARD, ShardRow(number, seq, _OPEN))
        return number
