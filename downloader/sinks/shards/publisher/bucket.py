"""Put the files of shards into a bucket of S3 or a store like it, with obstore.

Each file is put as a whole: it appears when all of its parts have arrived. Every request has the SHA-256
of its body, which the server compares. The MD5 of the whole file is kept as metadata of the object: one
that is there with the same MD5 and size is not sent again.
"""

from __future__ import annotations

import os
from typing import Final

from downloader.sinks.bucket_store import BucketError, open_bucket, refused
from downloader.sinks.shards.files import PUBLISHING
from downloader.sinks.shards.jobs import PublisherSettings
from downloader.sinks.shards.stats import ShardStats, read_stats, stats_directory
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
        self._home = settings.home
        self._copies = stats_directory(settings.home)
        os.makedirs(self._copies, exist_ok=True)
        self.store = open_bucket(settings.root, settings.endpoint_url, settings.region)

    def temporary(self, name: str) -> str:
        return os.path.join(self._home, f"{PUBLISHING}{name}")

    def can_take(self, path: str) -> bool:
        return True

    def publish(self, path: str, name: str, md5: str) -> None:
        import obstore

        size = os.path.getsize(path)
        digest = md5 or md5_of_file(path)
        try:
            if self._found(name) != (size, digest):
                with open(path, "rb") as file:
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
        if path == self.temporary(name):
            os.unlink(path)

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
        with open(path, "wb") as file:
            file.write(stats)
        os.replace(path, os.path.join(self._copies, name))

    def published(self, name: str) -> ShardStats | None:
        return read_stats(os.path.join(self._copies, name))


def _type(name: str) -> str:
    return _types.get(os.path.splitext(name)[1], "application/octet-stream")
