"""Define what a worker is started with, besides the Config."""

from __future__ import annotations

import msgspec

from downloader.core.ownership import Rules
from downloader.core.reached_hosts import ReachedHosts
from downloader.core.worker_counts import WorkerCounts
from downloader.files.directory import Entry
from downloader.storage.reserved_names import Reserved

__all__ = ["Setup"]


class Setup(msgspec.Struct, frozen=True):
    """What a worker needs besides the Config.

    ``reached``: the hosts that any worker has reached. ``counts``: what each worker has counted.
    ``reserved``: see ``reconciling.Exempt``. ``records``: the path of its spool, None if it needs none.
    """

    number: int
    ledger: Entry
    rules: Rules
    reached: ReachedHosts
    counts: WorkerCounts
    reserved: Reserved = Reserved()
    records: Entry | None = None
