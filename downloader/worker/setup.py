"""Define what a worker is started with, besides the Config."""

from __future__ import annotations

from pathlib import Path

import msgspec

from downloader.core.ownership import Rules

__all__ = ["Setup"]


class Setup(msgspec.Struct, frozen=True):
    """What a worker needs besides the Config.

    ``reserved``: see ``active_batch.Exempt``. ``records``: the path of its spool, None if it needs none.
    """

    number: int
    ledger: Path
    rules: Rules
    reserved: dict[str, str] = {}
    records: Path | None = None
