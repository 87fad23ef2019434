"""Parse and format sizes, times and counts.

1 k is 1024 bytes, 1 M is 1024 k, and so on. A time without a unit is in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = [
    "parse_count",
    "parse_range",
    "parse_rate",
    "parse_size",
    "parse_time",
    "show_count",
    "show_size",
    "show_time",
]

_NUMBER: Final = r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})"
_SIZE: Final = re.compile(rf"{_NUMBER}\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE).fullmatch
_TIME: Final = re.compile(rf"{_NUMBER}\s*(ms|s|m|h)?").fullmatch
_SIZES: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

Number = TypeVar("Number", int, float)


def parse_size(text: str) -> int:
    """Return the bytes in ``10k``, ``1.5M``, ``2 GiB``, ``100``; k, M, G, T (any case) are powers of 1024.

    A fraction of a byte is dropped. Less than one byte is an error, since 0 may mean "no limit". Raises
    ValueError, with a sentence, for anything else.
    """
    match = _SIZE(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a size; write bytes or, for example, 10k, 1.5M, 2G")
    size = _exact(match[1]) * _SIZES[(match[2] or "").lower()]
    if 0 < size < 1:
        raise ValueError(f"{text[:40]!r} is less than a byte")
    return int(size)


def parse_time(text: str) -> float:
    """Return the seconds in ``500ms``, ``0.5s``, ``2m``, ``1h``, ``3`` (seconds).

    Raises ValueError, with a sentence, for anything else.
    """
    match = _TIME(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a time; write seconds or, for example, 500ms, 2m, 1h")
    return float(_exact(match[1]) * _MILLISECONDS[match[2] or "s"] / 1000)


def _exact(number: str) -> Fraction:
    # Imported where it is needed: a run of a Config that is made elsewhere parses nothing.
    from fractions import Fraction

    return Fraction(number)


def parse_count(text: str, least: int, most: int) -> int:
    """Return a decimal integer from ``least`` to ``most``. Raises ValueError, with a sentence."""
    stripped = text.strip()
    if re.fullmatch(r"[0-9]{1,18}", stripped) and least <= int(stripped) <= most:
        return int(stripped)
    raise ValueError(f"{text[:40]!r} is not a whole number from {least:,} to {most:,}")


def parse_rate(text: str) -> float:
    """Return a rate per second: ``200``, ``0.5``. Raises ValueError, with a sentence, for anything else."""
    if (match := re.fullmatch(_NUMBER, text.strip())) is not None and float(match[1]) > 0:
        return float(match[1])
    raise ValueError(f"{text[:40]!r} is not a number above 0, such as 200 or 0.5")


def parse_range(text: str, unit_parser: Callable[[str], Number]) -> tuple[Number, Number]:
    """Return (MIN, MAX) of ``0-3s`` or ``100-10k``; a single value is both.

    Each side has its own unit: ``100-10k`` is 100 bytes to 10 k, ``1-3m`` is one second to three
    minutes. Raises ValueError as ``unit_parser`` does, and if MIN is more than MAX.
    """
    low_text, dash, high_text = text.partition("-")
    low = unit_parser(low_text)
    high = unit_parser(high_text) if dash else low
    if low > high:
        raise ValueError(
            f"{text[:40]!r} is not a range: its minimum is more than its maximum "
            "(each side needs its own unit)"
        )
    return low, high


def show_size(n: float) -> str:
    """Format bytes: ``0 B``, ``1.5 KiB``, ``12.0 MiB``."""
    if n < 1023.5:
        return f"{n:.0f} B"
    units = ["TiB", "GiB", "MiB", "KiB"]
    n /= 1024
    while n >= 1023.95 and len(units) > 1:
        n /= 1024
        units.pop()
    return f"{n:.1f} {units[-1]}" if n < 1024 else f"{n:,.1f} {units[-1]}"


def show_time(s: float) -> str:
    """Format seconds with about three digits: ``250 µs``, ``12.3 ms``, ``1.25 s``, ``2 m 05 s``.

    The units are those of ``parse_time``, and days.
    """
    if s < 0:
        return "-" + show_time(-s)
    if s < 0.0009995:
        return f"{s * 1e6:.0f} µs" if s else "0 s"
    if s < 0.9995:
        return f"{s * 1e3:.3g} ms"
    if s < 59.95:
        return f"{s:.3g} s"
    if s != s or s == float("inf"):
        return "?"
    minutes, seconds = divmod(round(s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours:02d} h"
    return f"{hours} h {minutes:02d} m" if hours else f"{minutes} m {seconds:02d} s"


def show_count(n: int) -> str:
    """Format a count: ``1,234,567``."""
    return f"{n:,}"
