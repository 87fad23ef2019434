"""List known bugs: each is a small replacement in the syntax tree of a definition (see ``syntax``), its
effect on a user, and the tests that must fail with it.

Most of them occurred once, here or in a comparable tool.
"""

from __future__ import annotations

from known import (
    buckets,
    changed,
    check_reports,
    diagnosing,
    documented,
    fetching,
    files,
    hosts,
    hub,
    lists,
    manners,
    packing,
    placing,
    plans,
    published,
    records,
    running,
    shards,
    shown_secrets,
    storing,
    watching,
    ways_in,
)
from known.mutant import Mutant

__all__ = ["KNOWN", "Mutant"]

KNOWN: tuple[Mutant, ...] = (
    *check_reports.KNOWN,
    *buckets.KNOWN,
    *changed.KNOWN,
    *storing.KNOWN,
    *diagnosing.KNOWN,
    *documented.KNOWN,
    *fetching.KNOWN,
    *files.KNOWN,
    *hosts.KNOWN,
    *hub.KNOWN,
    *lists.KNOWN,
    *manners.KNOWN,
    *packing.KNOWN,
    *placing.KNOWN,
    *plans.KNOWN,
    *published.KNOWN,
    *records.KNOWN,
    *running.KNOWN,
    *shards.KNOWN,
    *shown_secrets.KNOWN,
    *watching.KNOWN,
    *ways_in.KNOWN,
)
