"""Count the samples that a job keeps of shards which are not published yet, for ``status``."""

from __future__ import annotations

import os
import posix

from downloader.core.item_states import written
from downloader.files.directory import Directory, UnsafeFile
from downloader.sinks.shards.files import part_path, read_sealed
from downloader.sinks.shards.samples import metadata_member
from downloader.sinks.shards.ustar import BLOCK, header_of, padding

__all__ = ["kept_samples"]


def kept_samples(home: Directory, shard: int) -> tuple[int, int]:
    """Return how many samples of ``shard`` are kept under ``home``, and the bytes of their contents.

    The part is not read but for the headers in it, so samples count that the next run may find damaged.
    """
    try:
        fd = part_path(home, shard).open()
        try:
            return _in_part(fd)
        finally:
            posix.close(fd)
    except FileNotFoundError:
        pass
    except UnsafeFile:
        raise
    except OSError:
        return 0, 0
    try:
        sealed = read_sealed(home, shard)  # published, and not in the journal yet
    except UnsafeFile:
        raise
    except OSError:
        sealed = None
    found = list(written(sealed.marks)) if sealed is not None else []
    return len(found), sum(each.size for each in found)


def _in_part(fd: int) -> tuple[int, int]:
    end = os.fstat(fd).st_size
    samples = size = at = content = 0
    key = ""
    while (member := header_of(os.pread(fd, BLOCK, at), at + BLOCK)) is not None:
        at = member.offset + member.size + len(padding(member.size))
        if at > end:
            break
        if not key:
            key, content = member.name.partition(".")[0], member.size
        elif member.name == metadata_member(key):
            samples, size, key = samples + 1, size + content, ""
    return samples, size
