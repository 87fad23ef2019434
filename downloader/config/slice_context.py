"""Define ``SliceContext``: what a run is told that fetches one slice of a larger job."""

from __future__ import annotations

import msgspec

__all__ = ["SliceContext"]


class SliceContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slice of a larger job, and what that job knows.

    It is true where there is one, and false in a run that is a job of its own. ``path``: the file with its
    items, which the feeder reads in place of the source. ``shared_since_ns``: ``foreign_before_ns`` of
    ``core.ownership.Rules`` of the job. ``again``: the items are fetched again (``Item.earlier``).
    ``first_shard``: the number of its first shard. ``keep_records``: record as --manifest does.
    """

    path: str = ""
    shared_since_ns: int = 0
    again: bool = False
    first_shard: int = 0
    keep_records: bool = False

    def __bool__(self) -> bool:
        return bool(self.path)
