"""The retry policy and Retry-After."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.retry import RetryPolicy, parse_retry_after

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT
RANDOM = st.floats(0, 1, exclude_max=True)


def test_retries_allowed() -> None:
    policy = RetryPolicy(retries=2)
    assert [policy.allows(attempt, True) for attempt in (1, 2, 3)] == [True, True, False]
    assert not policy.allows(1, False)
    assert not RetryPolicy(retries=0).allows(1, True)


def test_policy_is_immutable() -> None:
    policy = RetryPolicy()
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.retries = 7  # type: ignore[misc]
    assert dataclasses.replace(policy, retries=7) == RetryPolicy(retries=7)


@pytest.mark.parametrize("wrong", [{"retries": -1}, {"backoff": -0.1}, {"max_retry_after": float("nan")}])
def test_invalid_policies_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attempt", "low", "high"),
    [(1, 0.25, 0.5), (2, 0.5, 1.0), (3, 1.0, 2.0), (5, 4.0, 8.0), (12, 60.0, 120.0)],
)
def test_the_range_of_the_jitter_doubles(attempt: int, low: float, high: float) -> None:
    policy = RetryPolicy()
    assert policy.delay(attempt, 0.0) == low
    assert policy.delay(attempt, 0.5) == pytest.approx((low + high) / 2)
    assert policy.delay(attempt, 1.0) == pytest.approx(high)


@given(st.integers(1, 10**9), RANDOM, st.floats(0, 1e6), st.floats(0, 1e6), st.none() | st.floats(0))
def test_delay_is_bounded(
    attempt: int, random: float, backoff: float, most: float, retry_after: float | None
) -> None:
    delay = RetryPolicy(5, backoff, most).delay(attempt, random, retry_after)
    # However little the server asks for: it is never less than without.
    assert min(backoff / 2, most) <= RetryPolicy(5, backoff, most).delay(attempt, random) <= delay <= most
    if retry_after is not None:
        assert min(retry_after, most * 0.9) <= delay


def test_retry_after_is_a_minimum_and_is_capped_and_jittered() -> None:
    policy = RetryPolicy(backoff=0.5, max_retry_after=120.0)
    assert policy.delay(1, 0.0, 60.0) == 60.0
    assert policy.delay(1, 0.5, 60.0) == 63.0
    assert policy.delay(1, 0.0, 1e9) == 120.0
    assert policy.delay(1, 0.5, 1e9) == 114.0
    assert policy.delay(1, 0.9, 119.0) == 120.0
    # "0" and a date in the past say nothing of how long: the backoff grows as without.
    assert policy.delay(1, 0.9, 0.0) == pytest.approx(0.475)
    assert [policy.delay(attempt, 1.0, 0.0) for attempt in (1, 2, 3, 5)] == [0.5, 1.0, 2.0, 8.0]
    assert policy.delay(5, 1.0, 4.0) == 8.0
    assert policy.delay(1, 0.0, -3.0) == 0.25


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("007", 7.0),
        ("-5", None),
        ("-0", None),
        ("1000000000", 1e9),
        ("9" * 5000, 1e12),
        ("0" * 5000 + "3", 3.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 11.0),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 11.0),
        ("Sun Nov  6 08:49:47 1994", 11.0),
        ("Sun, 06 Nov 1994 08:49:47 -0100", 3611.0),
        ("Sun, 06 Nov 1994 08:49:30 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 252_618_189_023.0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800 - NOW),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 25:49:37 GMT", None),
        ("soon", None),
        ("", None),
        ("1e9", None),
        ("1.5", None),
        ("+5", None),
        ("٣", None),
        ("5 seconds", None),
        ("inf", None),
        ("nan", None),
        ("Sun" * 100_000, None),
        ("\ud800", None),
    ],
)
def test_parse_retry_after(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("Sun, 06 Nov 1994 09:49:39 GMT", "Sun, 06 Nov 1994 09:49:37 GMT", 2.0),  # an hour ahead
        ("Sun, 06 Nov 1994 07:49:39 GMT", "Sun, 06 Nov 1994 07:49:37 GMT", 2.0),  # an hour behind
        ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:49:36 GMT", "Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", "just now", 11.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", "", 11.0),
        ("7", "Sun, 06 Nov 1994 09:49:37 GMT", 7.0),
        ("soon", "Sun, 06 Nov 1994 09:49:37 GMT", None),
    ],
)
def test_a_date_counts_from_that_of_the_response(value: str, date: str, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW, date) == seconds


DATELIKE = st.from_regex(
    r"[A-Z][a-z]{2}, ?\d{1,6}[ \-](Jan|Nov|Xyz)[ \-]\d{0,7} \d\d:\d\d:\d\d( ?(GMT|[+-]\d{1,9}|Z))?"
)


@given(st.text() | DATELIKE | st.integers().map(str), st.floats(0, 4e9))
def test_parse_retry_after_never_raises(value: str, now: float) -> None:
    seconds = parse_retry_after(value, now)
    assert seconds is None or 0.0 <= seconds <= 1e12
