"""What the workers of a run know of each other's connections."""

from __future__ import annotations

import mmap
import os

from downloader.core.worker_counts import Row, WorkerCounts, together

ROW = Row(1000.0, 2.0, 300.0, 4.0, True, False, False, 1.0, 32.0, 3.0, False, True)


def test_what_one_worker_writes_another_one_reads() -> None:
    counts = WorkerCounts(memoryview(mmap.mmap(-1, WorkerCounts.SIZE)))
    child = os.fork()
    if not child:
        counts.write(7, ROW)
        os._exit(0)
    os.waitpid(child, 0)
    assert counts.living(1000.1) == {7: ROW}


def test_dead_workers_do_not_count_and_the_first_that_lives_is_first() -> None:
    counts = WorkerCounts(memoryview(bytearray(WorkerCounts.SIZE)))
    for worker, now in ((0, 1000.0), (5, 1004.0), (2, 1004.2), (1027, 1004.3), (9, 1004.3)):
        counts.write(worker, ROW._replace(now=now))
    counts.withdraw(9)
    assert list(counts.living(1004.5)) == [2, 3, 5]


def test_workers_are_one() -> None:
    found = together([ROW, ROW._replace(cpu=4.0, refused=1.0, draining=True)], 1001.0)
    assert found.counted == (1001.0, 3.0, 600.0, 5, 2)
    assert (found.full, found.deepening, found.draining) == (True, False, True)


def test_most_workers_must_be_full() -> None:
    assert together([ROW, ROW, ROW._replace(full=False)], 1001.0).full
    assert not together([ROW, ROW._replace(full=False)], 1001.0).full


def test_workers_that_have_nothing_to_do_decide_nothing() -> None:
    idle = ROW._replace(cpu=0.0, full=False, works=False)
    found = together([ROW, idle, idle], 1001.0)
    assert found.full
    assert found.counted == (1001.0, 2.0, 900.0, 12, 1)
    assert not together([idle, idle], 1001.0).full


class Watched:
    """Shared memory all of whose rows somebody reads before each write."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(WorkerCounts.SIZE))
        self._cells = self._buffer.cast("d")
        self.seen: list[dict[int, Row]] = []

    def cast(self, kind: str) -> Watched:
        return self

    def __setitem__(self, at: int, value: float) -> None:
        self.seen.append(WorkerCounts(self._buffer).living(1000.1))
        self._cells[at] = value


def test_a_row_counts_once_it_is_whole() -> None:
    """Nobody waits for whoever writes it: a limit of 0 connections would be taken over."""
    watched = Watched()
    WorkerCounts(watched).write(7, ROW)  # type: ignore[arg-type]
    assert watched.seen == [{}] * len(ROW)
