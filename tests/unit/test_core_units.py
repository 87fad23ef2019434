"""Sizes, times and counts, parsed and shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.units import (
    parse_count,
    parse_range,
    parse_rate,
    parse_size,
    parse_time,
    show_count,
    show_size,
    show_time,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("100", 100),
        ("100B", 100),
        ("10k", 10_240),
        ("10K", 10_240),
        ("10kb", 10_240),
        ("10 KiB", 10_240),
        ("1.5M", 1_572_864),
        (".5k", 512),
        ("2G", 2 * 2**30),
        ("1t", 2**40),
        (" 7 ", 7),
        ("1.0001k", 1024),
    ],
)
def test_parse_size(text: str, size: int) -> None:
    assert parse_size(text) == size


RUBBISH = ["", " ", "k", "-1", "+1", "1e3", "1x", "1ib", "0x10", "1,5k", "nan", "inf", "٣", "1 2"]


def test_size_below_one_byte_is_refused() -> None:
    for text in ("0.5", "0.0001k", ".1"):
        with pytest.raises(ValueError, match="is less than a byte"):
            parse_size(text)
    assert parse_size("0.0k") == 0


@pytest.mark.parametrize("text", [*RUBBISH, "9" * 5000, "1kk", "1.2.3", "\ud800"])
def test_invalid_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3.0), ("500ms", 0.5), ("0.5s", 0.5), ("2m", 120.0), ("1.5h", 5400.0), ("0", 0.0)],
)
def test_parse_time(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", [*RUBBISH, "1d", "1M", "s", "9" * 5000])
def test_invalid_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text)


def test_parse_range() -> None:
    assert parse_range("0-3s", parse_time) == (0.0, 3.0)
    assert parse_range("100ms-2m", parse_time) == (0.1, 120.0)
    assert parse_range("100-10k", parse_size) == (100, 10_240)
    assert parse_range("5", parse_size) == (5, 5)
    assert parse_range("1s-1000ms", parse_time) == (1.0, 1.0)


@pytest.mark.parametrize("text", ["3s-0", "1-3ms", "", "-", "-3", "3-", "1-2-3", "a-b"])
def test_invalid_range(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_range(text, parse_time)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1023949, "1000.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (12 * 2**20, "12.0 MiB"),
        (2**40, "1.0 TiB"),
        (5000 * 2**40, "5,000.0 TiB"),
        (1023.7, "1.0 KiB"),
    ],
)
def test_show_size(size: float, text: str) -> None:
    assert show_size(size) == text


@given(st.integers(0, 2**49))
def test_a_shown_size_reads_back(size: int) -> None:
    assert parse_size(show_size(size)) == pytest.approx(size, rel=0.06)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00025, "250 µs"),
        (0.0123, "12.3 ms"),
        (0.9999, "1 s"),
        (1.25, "1.25 s"),
        (59.99, "1 m 00 s"),
        (125, "2 m 05 s"),
        (3600, "1 h 00 m"),
        (90_000, "1 d 01 h"),
        (-2, "-2 s"),
        (float("inf"), "?"),
        (float("nan"), "?"),
    ],
)
def test_show_time(seconds: float, text: str) -> None:
    assert show_time(seconds) == text


def test_show_count() -> None:
    assert [show_count(n) for n in (0, 999, 1_234_567)] == ["0", "999", "1,234,567"]


@pytest.mark.parametrize(("text", "value"), [("1", 1), (" 20 ", 20), ("007", 7), ("100", 100)])
def test_count(text: str, value: int) -> None:
    assert parse_count(text, 1, 100) == value


@pytest.mark.parametrize("text", ["", "0", "101", "-1", "1.0", "1e2", "١", "ten", "9" * 30])
def test_count_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number from 1 to 100"):
        parse_count(text, 1, 100)


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), ("0.5", 0.5), (".25", 0.25), ("1000", 1000.0)])
def test_rate(text: str, value: float) -> None:
    assert parse_rate(text) == value


@pytest.mark.parametrize("text", ["", "0", "0.0", "-1", "nan", "inf", "1/s"])
def test_rate_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number above 0"):
        parse_rate(text)
