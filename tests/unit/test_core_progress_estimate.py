"""What the progress says of rates and of the time left, decided without a clock."""

from __future__ import annotations

import pytest

from downloader.core.progress_estimate import Rates, seconds_left
from downloader.messages import Receiving, Tally

ONE = 5_000_000_000  # bytes of a large file


def observed(*counts: tuple[float, int, int]) -> Rates:
    rates = Rates(0.0)
    for now, files, size in counts:
        rates.observe(now, files, size)
    return rates


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    rates = observed(*((float(now), 10 * min(now, 5), 1000 * now) for now in range(1, 31)))
    assert (rates.files, rates.bytes, rates.idle) == (0.0, 1000.0, 25.0)


def test_body_that_does_not_arrive_whole_makes_no_negative_rate() -> None:
    assert observed((1.0, 1, 10**9), (2.0, 1, 0)).bytes == 0.0


BUSY = observed((1.0, 100, 0), (2.0, 200, 1000))
LATE = observed((1.0, 100, 0), (2.0, 100, 1000))


@pytest.mark.parametrize(
    ("rates", "left", "receiving", "expected"),
    [
        (BUSY, 300, Receiving(), 3.0),
        (BUSY, 300, Receiving(100, 2, 50, 1), 3.0),
        (BUSY, 300, Receiving(100, 2, 50_000, 1), 100.0),  # a large file takes longer than the others
        (BUSY, 2, Receiving(100, 2, 1000, 2), 2.0),  # all are known
        (BUSY, 2, Receiving(100, 2, 1000, 1), None),
        (BUSY, 1, Receiving(ONE, 1), None),  # its size is not known
        (LATE, 300, Receiving(), None),  # 50 were due in a second, and none came
        (observed((1.0, 0, 0)), 5, Receiving(), None),
        (observed((1.0, 0, 0)), 1, Receiving(0, 1, ONE, 1), None),
    ],
)
def test_time_left_is_said_where_it_is_known(
    rates: Rates, left: float, receiving: Receiving, expected: float | None
) -> None:
    assert seconds_left(rates, 100.0, left, receiving) == expected


def test_counts_without_others() -> None:
    assert Tally(5, 0, 3, 100).less(Tally(2, 1, 3, 200)) == Tally(3, 0, 0, 0)
    assert Receiving(1, 2, 3, 4) + Receiving(10, 20, 30, 40) == Receiving(11, 22, 33, 44)
