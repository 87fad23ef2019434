"""Decide what to do with an existing file that has an item's name and other bytes.

An item fails as ``name-taken`` only if another item of the job is known to own the name. The item's state
(``core.item_states``) records what the item itself owns; ``rule`` decides the other cases.

A claim is about one file (``file_id``): the one that was looked at when it was given. One that ``verify``
gives is about the damaged bytes (``content_id``), whatever file has them. Where anything else has the name
by now, the item has no claim on that: somebody has put it there meanwhile, perhaps another item of the job.
A run that finds another file than was stored gives a claim by the time of its last change (``lost_claim``).

Neither depends on the inode, which a copy of the destination does not keep, nor do some file systems; and
bytes are the same ones where a copy, or ``touch``, has changed the time.

==========  =================================  =========================================================
claim       last change of the file            decision
==========  =================================  =========================================================
OWNED       at any time                        REPLACE: it is the item's own, damaged or not verified
UNOWNED     at any time                        as --existing says: it belongs to no item of the job, or was
                                               changed after the item was stored, while no run was active
none        before the job                     as --existing says: it belongs to no item of the job
none        during the job, before a power     REPLACE: it is not in the journal, so it is what the power
            cut, and names are unique          cut left of this item
none        during the job                     CONTESTED: ``name-taken`` for now; at the end of the run
                                               the journal is searched for the owner of the name
==========  =================================  =========================================================

--existing ``replace`` is REPLACE_FOREIGN, ``keep`` is KEEP, ``fail`` is REFUSE. A failed sync is as a power
cut.
"""

from __future__ import annotations

import enum
import zlib
from typing import Protocol

import msgspec

from downloader.core.item_states import OWNED, UNOWNED, UNTOUCHED, Claim
from downloader.core.run_times import Times, covers
from downloader.core.words import Existing

__all__ = [
    "Decision",
    "Rules",
    "content_id",
    "file_id",
    "is_valid",
    "link_id",
    "lost_claim",
    "rule",
    "unsettled",
]


class Decision(enum.Enum):
    """The decision about an existing file."""

    REPLACE = "replace it"
    REPLACE_FOREIGN = "replace it, and count it as replaced"
    KEEP = "keep it; the item is skipped"
    REFUSE = "keep it; the item fails as file-exists"
    CONTESTED = "keep it; the item fails as name-taken until it is known who owns the name"


class FileStatus(Protocol):
    """What ``os.stat_result`` says of a file, as far as it is needed here."""

    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...


class Rules(msgspec.Struct, frozen=True):
    """The facts about existing files in a destination. Times are in ns, by the file system's clock.

    ``foreign_before_ns``: a file last changed before this time existed before the job; 0 if the
    destination was empty. ``lost_before_ns``: a file last changed before this time may be what a power
    cut left of an item; 0 if there was no power cut, or if several items can have the same name.
    ``known_before_ns``: a file last changed before this time was stored by no item since the source began
    to be read again (--relist); 0 if that is not known. ``runs``: when the job was active.
    ``existing``: the value of --existing. ``temporary``: prefix of temporary names, where several runs
    store into one destination. ``sole_owners``: no two items can have the same name, or nobody will search
    the journal for the owner of one. ``root``: device and inode of the destination that the run holds open;
    (0, 0): any directory with its path.
    """

    foreign_before_ns: int = 0
    lost_before_ns: int = 0
    existing: Existing = "replace"
    temporary: str = ""
    sole_owners: bool = False
    known_before_ns: int = 0
    runs: Times = ()
    root: tuple[int, int] = (0, 0)


_EXISTING = {
    "replace": Decision.REPLACE_FOREIGN,
    "keep": Decision.KEEP,
    "fail": Decision.REFUSE,
}


def file_id(found: FileStatus) -> int:
    """Return which file that is, of those that may have one name, in 32 bits: never 0.

    It stays the same when only the names, the owner or the permissions of the file are changed, and in a
    copy that has its time (``cp -a``). Its lowest bit is set, see ``unsettled``.
    """
    return zlib.crc32(b"%d %d" % (found.st_size, found.st_mtime_ns)) | 1


def content_id(size: int, crc: int) -> int:
    """Return which content that is, like ``file_id``: any file that has these bytes."""
    return zlib.crc32(b"content %d %d" % (size, crc)) | 1


def link_id(target: bytes) -> int:
    """Return which link that is, like ``content_id``: any symbolic link that leads to ``target``."""
    return zlib.crc32(b"link " + target) | 1


def unsettled(file: int) -> int:
    """Return ``file`` for a claim that is not valid yet: another item of the job may own that file.

    Whoever finds that no other item does makes it valid (``storage.name_owners``). 0, no file, stays 0.
    """
    return file & ~1


def is_valid(claim: Claim, found: FileStatus) -> bool:
    """Return whether ``claim`` is about the file that has the name."""
    return claim.state in (OWNED, UNOWNED) and claim.file == file_id(found)


def lost_claim(found: FileStatus, rules: Rules) -> int:
    """Return the state of the claim of an item on the file that has its name and is not what was stored.

    OWNED: a run, its kill or a disk may have damaged it. UNOWNED: somebody has changed it since, and not
    only its names, its owner or its permissions: its content has a time, too.
    """
    times = found.st_ctime_ns, found.st_mtime_ns
    return OWNED if any(covers(rules.runs, changed_ns) for changed_ns in times) else UNOWNED


def rule(claim: Claim, found: FileStatus, rules: Rules) -> Decision:
    """Return the decision about the file ``found``, which has the name of an item with ``claim``."""
    state = claim.state if is_valid(claim, found) else UNTOUCHED
    if state == OWNED:
        return Decision.REPLACE
    if state == UNOWNED or found.st_ctime_ns < rules.foreign_before_ns:
        return _EXISTING[rules.existing]
    if found.st_ctime_ns < rules.lost_before_ns:
        return Decision.REPLACE
    return Decision.CONTESTED
