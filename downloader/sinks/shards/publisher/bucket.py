"""Put the files of shards into a bucket of S3 or a store like it, with obstore.

Each file is put as a whole: it appears when all of its parts have arrived. Every request has the SHA-256
of its body, which the server compares. The MD5 of the whole file is kept as metadata of the object: one
that is there with the same MD5 and size is not sent again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO, Final

from downloader.files.directory import Entry, open_home
from downloader.sinks.bucket_patience import Patience
from downloader.sinks.bucket_store import BucketError, is_denied, lacks_conditions, open_bucket
from downloader.sinks.shards.files import PUBLISHING, STATS
from downloader.sinks.shards.jobs import PublisherSettings
from downloader.sinks.shards.records import OtherFile, Ours
from downloader.sinks.shards.stats import ShardStats, read_stats
from downloader.sinks.stored import md5_of_file
from downloader.sinks.taken_names import NameTaken

__all__ = ["MD5", "Bucket", "BucketError"]

MD5: Final = "downloader-md5"
"""The attribute of an object with its MD5, in hexadecimal."""
_CHUNK: Final = 8 << 20
_MOST_CHUNKS: Final = 10_000  # of an upload, in S3
_AT_ONCE: Final = 2
_USUAL: Final = 1 << 30  # of a shard
_types: Final = {
    ".json": "application/json",
    ".tar": "application/x-tar",
    ".parquet": "application/vnd.apache.parquet",
}


class Bucket:
    """See ``Place``. Temporary files, and copies of the stats, are in ``settings.home``.

    ``store``: that of obstore, below the prefix, for requests without a body. ``patience``: each request is
    sent with it. Raises BucketError.
    """

    def __init__(self, settings: PublisherSettings, patience: Patience) -> None:
        self.home = open_home(Path(settings.home))
        (self.home / STATS).make_directory()
        self.root = settings.root
        self.patience = patience
        self.store = open_bucket(settings.root, settings.access)
        self._access = settings.access
        self._stores: dict[int, Any] = {}  # by the largest file they are for
        self._of_slice = settings.of_slice
        self._has_conditions = True

    def store_for(self, size: int) -> Any:
        """Return the store for a file of ``size`` bytes, which is sent or copied."""
        largest = 0 if size <= _CHUNK else _USUAL
        while largest and largest < size:
            largest *= 2
        if largest not in self._stores:
            sent = _chunk(largest)
            self._stores[largest] = open_bucket(self.root, self._access, sent=sent, whole=largest)
        return self._stores[largest]

    def temporary(self, name: str) -> Entry:
        return self.home / f"{PUBLISHING}{name}"

    def can_take(self, path: Entry) -> bool:
        return True

    def publish(self, path: Entry, name: str, md5: str, ours: Ours, existing: str) -> bool:
        with path.reader() as file:
            replaced = self._publish(file, name, md5, ours, existing)
        if path.name == self.temporary(name).name:
            path.unlink()
        return replaced

    def _publish(self, file: BinaryIO, name: str, md5: str, ours: Ours, existing: str) -> bool:
        size = os.fstat(file.fileno()).st_size
        digest = md5 or md5_of_file(file)
        found = self.found(name)
        # A small one is put on the condition that none is there. Parts of a larger one have no conditions,
        # nor has any where the store knows none.
        small = size <= _CHUNK
        if found is None and small and self._has_conditions:
            if self._put(file, name, digest, new=True):
                return False
            found = self.found(name)
        if found == (size, digest):
            return False
        is_ours = found is not None and ours.has_digest(name, *found)
        if found is not None and found[1] and not is_ours and not self._of_slice:
            # Nothing locks a bucket. None was there when this job began, and it is no file of the user's.
            raise NameTaken(self.root, name, by_job=True)
        is_there = found is not None or (small and self._has_conditions)
        if existing != "replace" and not is_ours and is_there:
            raise NameTaken(self.root, name)
        self._put(file, name, digest)
        return found is not None and not is_ours

    def put(self, path: Entry, name: str, md5: str) -> None:
        """Put a file, in place of an object of that name. Raises OSError, BucketError."""
        with path.reader() as file:
            self._put(file, name, md5 or md5_of_file(file))

    def _put(self, file: BinaryIO, name: str, digest: str, *, new: bool = False) -> bool:
        """Put ``file``; return False if ``new`` and there is an object of that name, or no such request."""
        return self.patience(lambda: self._put_once(file, name, digest, new=new))

    def _put_once(self, file: BinaryIO, name: str, digest: str, *, new: bool) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        more: Any = {"mode": "create", "use_multipart": False} if new else {}
        try:
            obstore.put(
                self.store_for(size),
                name,
                file,
                attributes={MD5: digest, "Content-Type": _type(name)},
                chunk_size=_chunk(size),
                max_concurrency=_AT_ONCE,
                **more,
            )
        except (AlreadyExistsError, PreconditionError):
            return False
        except Exception as error:
            if not (new and lacks_conditions(error)):
                raise
            self._has_conditions = False
            return False
        return True

    def found(self, name: str) -> tuple[int, str] | None:
        """Return size and MD5 of an object of this name, None if there is none, or that is not told.

        Who may put objects need not have the right to look at them.
        """
        return self.patience(lambda: self._found_once(name))

    def _found_once(self, name: str) -> tuple[int, str] | None:
        import obstore

        try:
            found = obstore.get(self.store, name, options={"head": True})
        except FileNotFoundError:
            return None
        except Exception as error:
            if is_denied(error):
                return None
            raise
        return found.meta["size"], found.attributes.get(MD5, "")

    def remove(self, name: str, ours: Ours) -> None:
        """Do nothing: who may put objects need not have the right to remove them. ``verify`` names it."""

    def has(self, file: OtherFile) -> bool:
        return self.found(file.name) == (file.size, file.md5)

    def record(self, stats: bytes, name: str) -> None:
        path = self.temporary(name)
        with path.writer() as file:
            file.write(stats)
        path.move(self.home / STATS / name)

    def published(self, name: str) -> ShardStats | None:
        return read_stats(self.home / STATS / name)


def _chunk(size: int) -> int:
    """Return how large the parts of a file of ``size`` bytes are."""
    return max(_CHUNK, size // _MOST_CHUNKS + 1)


def _type(name: str) -> str:
    return _types.get(os.path.splitext(name)[1], "application/octet-stream")
