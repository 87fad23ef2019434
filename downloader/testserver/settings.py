"""Define and check the settings of the file server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from downloader.errors import ConfigError

__all__ = ["MOST_FILES", "Settings"]

MOST_FILES: Final = 10**9


@dataclass(frozen=True)
class Settings:
    """The settings of the file server. Raises ConfigError for an invalid value.

    ``size``: minimum and maximum bytes of a file, equal for a fixed size. ``page``: names in one response
    to ``/list``. ``port``: 0 selects any free one. ``delay``: minimum and maximum seconds between the
    arrival of a ``/get`` request and its response, drawn for each. ``workers``: number of processes; 1
    serves in the calling process. ``next_file_alias``: spell the marker ``NextFile``, as on some of the
    talk's slides, instead of ``NextMarker``. ``drop_rate``: the probability that a response with a file is
    cut by the end of its connection; ``seed``: makes these draws reproducible. ``close_after``: number of
    responses after which a connection is closed, 0 for no limit.
    """

    files: int = 1000
    size: tuple[int, int] = (100, 100)
    page: int = 1000
    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = False
    delay: tuple[float, float] = (0.0, 0.0)
    workers: int = 1
    next_file_alias: bool = False
    drop_rate: float = 0.0
    seed: int | None = None
    close_after: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.files <= MOST_FILES:
            raise ConfigError(f"files: {self.files} is not in 0 … {MOST_FILES}")
        if not 0 <= self.size[0] <= self.size[1]:
            raise ConfigError(f"size: {self.size[0]}-{self.size[1]} is not a range of sizes")
        if self.page < 1:
            raise ConfigError(f"page: {self.page} names a page is fewer than one")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port: {self.port} is not in 0 … 65535")
        if not 0 <= self.delay[0] <= self.delay[1] < float("inf"):
            raise ConfigError(f"delay: {self.delay[0]}-{self.delay[1]} is not a range of times")
        if self.workers < 1:
            raise ConfigError(f"workers: {self.workers} is fewer than one")
        if not 0 <= self.drop_rate <= 1:
            raise ConfigError(f"drop_rate: {self.drop_rate} is not a probability, 0 … 1")
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"seed: {self.seed} is negative")
        if self.close_after < 0:
            raise ConfigError(f"close_after: {self.close_after} is not a number of answers")
