"""The rule for a file that has the name of an item already: every row of its table."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import get_args

from downloader.core.item_states import NO_CLAIM, OWNED, UNOWNED, UNTOUCHED, Claim
from downloader.core.ownership import Decision, Rules, file_id, is_valid, rule, unsettled
from downloader.core.words import Existing

BEFORE, DURING, AFTER_CUT = 100, 200, 300
FOREIGN_BEFORE, LOST_BEFORE = 150, 250
EXISTING = {
    "replace": Decision.REPLACE_FOREIGN,
    "keep": Decision.KEEP,
    "fail": Decision.REFUSE,
}


def file(changed: int = 1, inode: int = 1, size: int = 1, written: int = 1) -> os.stat_result:
    """Return what the system says of a file, with times in ns."""
    times = {"st_ctime_ns": changed, "st_mtime_ns": written}
    return os.stat_result((0o100644, inode, 1, 1, 0, 0, size, 0, 0, 0), times)


# claim on this file, the file was changed last, there was a cut: the decision; None: as --existing says.
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
    for (state, changed, cut), decision in TABLE.items():
        for existing in get_args(Existing):
            rules = Rules(FOREIGN_BEFORE, LOST_BEFORE if cut else 0, existing)
            found = file(changed)
            claim = Claim(state, file_id(found))
            expected = decision or EXISTING[existing]
            assert rule(claim, found, rules) is expected, (state, changed, cut)
            # A claim on another file, on none, or one that is not settled, is no claim on this one.
            none = TABLE[UNTOUCHED, changed, cut] or EXISTING[existing]
            for other in (file_id(file(size=2)), 0, unsettled(file_id(found))):
                assert rule(Claim(state, other), found, rules) is none, (state, changed, cut)


def test_ownership_table_is_complete() -> None:
    assert TABLE.keys() == set(
        itertools.product((OWNED, UNOWNED, UNTOUCHED), (BEFORE, DURING, AFTER_CUT), (False, True))
    )


def test_file_in_a_new_destination_is_contested() -> None:
    assert rule(NO_CLAIM, file(), Rules()) is Decision.CONTESTED


def test_claim_is_about_one_file(tmp_path: Path) -> None:
    """It stays valid when the file is renamed, copied or gets other permissions, not when it is changed."""
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"one")
    claim = Claim(OWNED, file_id(os.lstat(path)))
    path.chmod(0o600)
    path.rename(other)
    other.rename(path)
    assert is_valid(claim, os.lstat(path))
    shutil.copy2(path, other)
    assert is_valid(claim, os.lstat(other))
    os.utime(other, ns=(1, 1))
    assert not is_valid(claim, os.lstat(other))
    path.write_bytes(b"another")
    assert not is_valid(claim, os.lstat(path))
    for each in (file(changed=2), file(inode=2)):
        assert is_valid(Claim(OWNED, file_id(file())), each)
    for each in (file(size=2), file(written=2)):
        assert not is_valid(Claim(OWNED, file_id(each)), file())
