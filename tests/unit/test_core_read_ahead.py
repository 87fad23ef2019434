"""How many files a worker holds, decided without a socket."""

from __future__ import annotations

import pytest

from downloader.core.read_ahead import max_resting, wants_more


@pytest.mark.parametrize(
    ("unstarted", "resting", "hosts", "expected"),
    [
        (99, 0, 1, True),
        (100, 0, 1, False),
        (150, 60, 1, True),  # those of failing hosts do not count
        (10_100, 10_000, 1, False),
        (20_000, 19_950, 1, False),  # but not without end
        (99, 0, 5_999, True),
        (99, 0, 6_000, False),
    ],
)
def test_more_is_wanted_while_few_can_start(
    unstarted: int, resting: int, hosts: int, expected: bool
) -> None:
    assert wants_more(100, unstarted, resting, 10_000, hosts) is expected


@pytest.mark.parametrize(("workers", "expected"), [(1, 200_000), (2, 100_000), (64, 10_000)])
def test_workers_share_what_may_wait(workers: int, expected: int) -> None:
    assert max_resting(workers) == expected
