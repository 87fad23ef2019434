"""Let another process have a part in a run: a run that is one of many shares their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from downloader.messages import Drain, HostPause, Message, Rate, Tally

__all__ = ["Coordinator", "Order", "RateShares"]

Order = Rate | HostPause | Drain
"""What a coordinator may tell a run: its share of --rate, that a host pauses, that it is to end."""


class Coordinator(Protocol):
    """The connection of a run to what coordinates it with others. No method waits."""

    def exchange(self, count: Callable[[], Tally]) -> list[Order]:
        """Report ``count()`` if it is time to, and return what was told since the last call."""

    def paused(self, pause: HostPause) -> None:
        """Report that a worker lets a host pause."""


class RateShares:
    """Divide --rate, which is for all workers together, among those that have work."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._sharers: list[int] = []

    def change(self, rate: float) -> None:
        """Divide another ``rate`` from now on."""
        self._rate, self._sharers = rate, []

    def divide(self, busy: list[int], send: Callable[[int, Message], None]) -> None:
        """Tell the workers ``busy`` their shares, if those have changed."""
        if self._rate and busy and busy != self._sharers:
            self._sharers = busy
            for worker in busy:
                send(worker, Rate(self._rate / len(busy)))
