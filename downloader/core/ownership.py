"""Decide what to do with an existing file that has an item's name and other bytes.

An item fails as ``name-taken`` only if another item of the job is known to own the name. The item's state
(``core.item_states``) records what the item itself owns; ``rule`` decides the other cases.

==========  =================================  =========================================================
claim       last change of the file            decision
==========  =================================  =========================================================
OWNED       at any time                        REPLACE: it is the item's own, damaged or not verified
UNOWNED     at any time                        as --existing says: it belongs to no item of the job
none        before the job                     as --existing says: it belongs to no item of the job
none        during the job, before a power     REPLACE: it is not in the journal, so it is what the power
            cut, and names are unique          cut left of this item
none        during the job                     CONTESTED: ``name-taken`` for now; at the end of the run
                                               the journal is searched for the owner of the name
==========  =================================  =========================================================

--existing ``replace`` is REPLACE_FOREIGN, ``keep`` is KEEP, ``fail`` is REFUSE.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from downloader.core.item_states import OWNED, UNOWNED

__all__ = ["Decision", "Existing", "Rules", "rule"]

Existing = Literal["replace", "keep", "fail"]


class Decision(enum.Enum):
    """The decision about an existing file."""

    REPLACE = "replace it"
    REPLACE_FOREIGN = "replace it, and count it as replaced"
    KEEP = "keep it; the item is skipped"
    REFUSE = "keep it; the item fails as file-exists"
    CONTESTED = "keep it; the item fails as name-taken until it is known who owns the name"


class Rules(msgspec.Struct, frozen=True):
    """The facts about existing files in a destination. Times are in ns, by the file system's clock.

    ``foreign_before_ns``: a file last changed before this time existed before the job; 0 if the
    destination was empty. ``lost_before_ns``: a file last changed before this time may be what a power
    cut left of an item; 0 if there was no power cut, or if several items can have the same name.
    ``existing``: the value of --existing. ``temporary``: prefix of temporary names, where several runs
    store into one destination.
    """

    foreign_before_ns: int = 0
    lost_before_ns: int = 0
    existing: Existing = "replace"
    temporary: str = ""


_EXISTING = {
    "replace": Decision.REPLACE_FOREIGN,
    "keep": Decision.KEEP,
    "fail": Decision.REFUSE,
}


def rule(claim: int, changed_ns: int, rules: Rules) -> Decision:
    """Return the decision for a file last changed at ``changed_ns`` and an item with ``claim``."""
    if claim == OWNED:
        return Decision.REPLACE
    if claim == UNOWNED or changed_ns < rules.foreign_before_ns:
        return _EXISTING[rules.existing]
    if changed_ns < rules.lost_before_ns:
        return Decision.REPLACE
    return Decision.CONTESTED
