"""Put the files of shards into a bucket of S3 or a store like it, with obstore.

Each file is put as a whole: it appears when all of its parts have arrived. Every request has the SHA-256
of its body, which the server compares. The MD5 of the whole file is kept as metadata of the object: one
that is there with the same MD5 and size is not sent again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from downloader.files.directory import Entry, open_home
from downloader.sinks.bucket_store import BucketError, open_bucket, refused
from downloader.sinks.shards.files import PUBLISHING, STATS
from downloader.sinks.shards.jobs import PublisherSettings
from downloader.sinks.shards.stats import ShardStats, read_stats
from downloader.sinks.stored import md5_of_file

__all__ = ["MD5", "Bucket", "BucketError"]

MD5: Final = "downloader-md5"
"""The attribute of an object with its MD5, in hexadecimal."""
_CHUNK: Final = 8 << 20
_MOST_CHUNKS: Final = 10_000  # of an upload, in S3
_AT_ONCE: Final = 2
_types: Final = {
    ".json": "application/json",
    ".tar": "application/x-tar",
    ".parquet": "application/vnd.apache.parquet",
}


class Bucket:
    """See ``Place``. Temporary files, and copies of the stats, are in ``settings.home``.

    ``store``: that of obstore, below the prefix. Raises BucketError.
    """

    def __init__(self, settings: PublisherSettings) -> None:
        self.home = open_home(Path(settings.home))
        (self.home / STATS).make_directory()
        self.store = open_bucket(settings.root, settings.endpoint_url, settings.region)

    def temporary(self, name: str) -> Entry:
        return self.home / f"{PUBLISHING}{name}"

    def can_take(self, path: Entry) -> bool:
        return True

    def publish(self, path: Entry, name: str, md5: str) -> None:
        import obstore

        with path.reader() as file:
            size = os.fstat(file.fileno()).st_size
            digest = md5 or md5_of_file(file)
            try:
                if self._found(name) != (size, digest):
                    file.seek(0)
                    obstore.put(
                        self.store,
                        name,
                        file,
                        attributes={MD5: digest, "Content-Type": _type(name)},
                        chunk_size=max(_CHUNK, size // _MOST_CHUNKS + 1),
                        max_concurrency=_AT_ONCE,
                    )
            except Exception as error:
                refused(error)
        if path.name == self.temporary(name).name:
            path.unlink()

    def _found(self, name: str) -> tuple[int, str] | None:
        """Return size and MD5 of an object that was put earlier, None if there is none."""
        import obstore

        try:
            found = obstore.get(self.store, name, options={"head": True})
        except FileNotFoundError:
            return None
        return found.meta["size"], found.attributes.get(MD5, "")

    def record(self, stats: bytes, name: str) -> None:
        path = self.temporary(name)
        with path.writer() as file:
            file.write(stats)
        path.move(self.home / STATS / name)

    def published(self, name: str) -> ShardStats | None:
        return read_stats(self.home / STATS / name)


def _type(name: str) -> str:
    return _types.get(os.path.splitext(name)[1], "application/octet-stream")
