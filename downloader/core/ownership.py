"""What to do with a file that has the name of an item already, and other bytes.

An item is refused as ``name-taken`` only when another item of the job is known to own the name. What an
item owns itself is known from its marks (``core.item_states``); ``rule`` decides the rest.

==========  =================================  =========================================================
claim       the file was changed last          decision
==========  =================================  =========================================================
OWNED       at any time                        REPLACE: it is the item's own, damaged or not trusted
UNOWNED     at any time                        as --existing says: it belongs to no item of the job
none        before the job                     as --existing says: it belongs to no item of the job
none        during the job, before a power     REPLACE: what the journal does not have is what the cut
            cut, and names are unique          left of this item
none        during the job                     CONTESTED: ``name-taken`` for now; at the end of the run
                                               the journal is asked who owns the name
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
    """What becomes of the file that has the name."""

    REPLACE = "replace it"
    REPLACE_FOREIGN = "replace it, and count it as replaced"
    KEEP = "keep it; the item is skipped"
    REFUSE = "keep it; the item fails as file-exists"
    CONTESTED = "keep it; the item fails as name-taken until it is known who owns the name"


class Rules(msgspec.Struct, frozen=True):
    """What is known of the files of a destination. Times are ns, of the file system's own clock.

    ``foreign_before_ns``: a file that was changed last before then was there before the job; 0 when the
    destination was empty. ``lost_before_ns``: a file that was changed last before then may be what a
    power cut left of an item; 0 when there was no cut, or when several items can have one name.
    ``existing``: --existing.
    """

    foreign_before_ns: int = 0
    lost_before_ns: int = 0
    existing: Existing = "replace"


_EXISTING = {
    "replace": Decision.REPLACE_FOREIGN,
    "keep": Decision.KEEP,
    "fail": Decision.REFUSE,
}


def rule(claim: int, changed_ns: int, rules: Rules) -> Decision:
    """Return the decision for a file that was changed last at ``changed_ns``, met by an item whose
    mark has ``claim``."""
    if claim == OWNED:
        return Decision.REPLACE
    if claim == UNOWNED or changed_ns < rules.foreign_before_ns:
        return _EXISTING[rules.existing]
    if changed_ns < rules.lost_before_ns:
        return Decision.REPLACE
    return Decision.CONTESTED
