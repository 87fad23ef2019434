"""What the journal has of a job and of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from downloader.core.naming import COLON

__all__ = ["BatchRow", "JobSpec"]


class JobSpec(msgspec.Struct, frozen=True):
    """The job of a journal. ``source`` is a digest, ``shown`` the source without secrets.

    ``foreign_before_ns``, ``lost_before_ns``: see ``core.ownership.Rules``. ``output``: the destination, if
    the journal is not in it. ``colon``: see ``core.naming.url_path``. ``naming``: the rules for
    names: with 1, a query counts as part of the extension of a numbered one; up to 2, those of a bag are
    escaped; up to 3, fewer parameters of URLs count as secrets; up to 4, blanks at the
    ends of a name that a list gives are stripped, unless all of its page are plain, and
    more of a path counts as a login, ``sig=x.jpg`` loses its extension, and mirror leaves ``?`` alone;
    up to 5, only ``.downloader`` itself is escaped, not what a file system without case takes for it; up to
    8, what looks like a signature beside an expiry is none.
    ``types``: of its kept columns (``core.column_types``). ``kept``: --keep-columns where there are
    shards, whose tables have them, or records for a manifest, as JSON; "" where that is not known.
    ``began_ns``: when it began to store files, by the clock of ``output``; 0 if that is not known, or the
    journal is in it. ``key``: the digest of the key of its names (``storage.name_key``), "" if that is not
    known. ``duplicates``: --on-duplicate, "" if that is not known, or the source has no such option.
    """

    source: str
    shown: str
    kind: str
    store: str
    layout: str
    foreign_before_ns: int
    lost_before_ns: int = 0
    output: str = ""
    colon: str = COLON
    naming: int = 1
    types: str = ""
    kept: str = ""
    began_ns: int = 0
    key: str = ""
    duplicates: str = ""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch in the journal."""

    seq: int
    count: int
    names: bytes
    recall_data: bytes
    done: bool
    marks: bytes
