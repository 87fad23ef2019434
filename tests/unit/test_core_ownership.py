"""The rule for a file that has the name of an item already: every row of its table."""

from __future__ import annotations

import itertools
from typing import get_args

from downloader.core.item_states import OWNED, UNOWNED, UNTOUCHED
from downloader.core.ownership import Decision, Existing, Rules, rule

BEFORE, DURING, AFTER_CUT = 100, 200, 300
FOREIGN_BEFORE, LOST_BEFORE = 150, 250
EXISTING = {
    "replace": Decision.REPLACE_FOREIGN,
    "keep": Decision.KEEP,
    "fail": Decision.REFUSE,
}
# claim, the file was changed last, there was a cut: the decision; None: as --existing says.
TABLE = {
    (OWNED, BEFORE, False): Decision.REPLACE,
    (OWNED, DURING, False): Decision.REPLACE,
    (OWNED, AFTER_CUT, False): Decision.REPLACE,
    (OWNED, BEFORE, True): Decision.REPLACE,
    (OWNED, DURING, True): Decision.REPLACE,
    (OWNED, AFTER_CUT, True): Decision.REPLACE,
    (UNOWNED, BEFORE, False): None,
    (UNOWNED, DURING, False): None,
    (UNOWNED, AFTER_CUT, False): None,
    (UNOWNED, BEFORE, True): None,
    (UNOWNED, DURING, True): None,
    (UNOWNED, AFTER_CUT, True): None,
    (UNTOUCHED, BEFORE, False): None,
    (UNTOUCHED, DURING, False): Decision.CONTESTED,
    (UNTOUCHED, AFTER_CUT, False): Decision.CONTESTED,
    (UNTOUCHED, BEFORE, True): None,
    (UNTOUCHED, DURING, True): Decision.REPLACE,
    (UNTOUCHED, AFTER_CUT, True): Decision.CONTESTED,
}


def test_ownership_table() -> None:
    for (claim, changed, cut), decision in TABLE.items():
        for existing in get_args(Existing):
            rules = Rules(FOREIGN_BEFORE, LOST_BEFORE if cut else 0, existing)
            assert rule(claim, changed, rules) is (decision or EXISTING[existing]), (claim, changed, cut)


def test_ownership_table_is_complete() -> None:
    assert TABLE.keys() == set(
        itertools.product((OWNED, UNOWNED, UNTOUCHED), (BEFORE, DURING, AFTER_CUT), (False, True))
    )


def test_file_in_a_new_destination_is_contested() -> None:
    assert rule(UNTOUCHED, 1, Rules()) is Decision.CONTESTED
