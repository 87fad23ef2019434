"""The time in which a process was stopped is told from that in which a server was silent."""

from __future__ import annotations

from downloader.core.stopped_time import StoppedTime


def test_a_gap_excuses_what_began_before_it() -> None:
    stopped = StoppedTime(100.0)
    for second in range(1, 6):
        stopped.beat(100.0 + second)
    assert not stopped.interrupted(90.0, 105.9)
    # Timers of the first turn of the loop come before the sign of life.
    assert stopped.interrupted(101.0, 150.0)
    stopped.beat(150.0)
    assert stopped.interrupted(101.0, 151.0)
    assert not stopped.interrupted(150.0, 152.0)


def test_a_process_that_gets_no_time_comes_to_an_end() -> None:
    stopped = StoppedTime(0.0)
    now = 0.0
    for _ in range(99):
        now += 60
        assert stopped.interrupted(now - 30, now)
        stopped.beat(now)
    stopped.beat(now + 60)
    assert not stopped.interrupted(now, now + 61)
