from __future__ import annotations

from itertools import pairwise

from downloader.core.run_times import MOST, begin, covers, end


def test_a_run_covers_its_time() -> None:
    times = end(begin(end(begin((), 10), 20), 40), 50)
    assert times == ((10, 20), (40, 50))
    assert [covers(times, now) for now in (9, 10, 20, 21, 39, 40, 50, 51)] == [
        *(False, True, True, False),
        *(False, True, True, False),
    ]


def test_a_run_that_goes_on_covers_all_that_follows() -> None:
    assert covers(begin((), 10), 1 << 62)
    assert not covers(begin((), 10), 9)


def test_a_run_that_was_killed_lasts_until_the_next() -> None:
    assert end(begin(begin((), 10), 40), 50) == ((10, 40), (40, 50))


def test_a_clock_that_was_set_back_gives_no_time_that_ends_before_it_begins() -> None:
    assert end(begin((), 10), 5) == ((10, 10),)


def test_where_no_time_is_known_any_may_be_that_of_a_run() -> None:
    assert covers((), 7)


def test_of_many_runs_the_oldest_count_as_one() -> None:
    times = ()
    for began in range(0, 11_000, 10):
        times = end(begin(times, began), began + 5)
    assert len(times) == MOST
    assert times[0] == (0, 1_005)
    assert all(first[1] < second[0] for first, second in pairwise(times))
