"""Move the objects of attempts to their final names, within a bucket; see ``sinks.shards.staging``."""

from __future__ import annotations

import contextlib
from typing import Any

from downloader.sinks.bucket_store import BucketError, is_denied, translated
from downloader.sinks.shards.publisher.bucket import MD5, Bucket
from downloader.sinks.shards.staging import ATTEMPTS, missing_text
from downloader.sinks.shards.staging_bucket import BucketTask

__all__ = ["carry_out"]

_CHECKED = ".downloader/check"
_LARGEST_COPY = 5 << 30  # of one request, in S3


def carry_out(task: BucketTask, bucket: Bucket, root: str) -> list[str]:
    """Do what ``task`` says; return the names of the stagings, if it asks for them. Raises BucketError."""
    with translated():
        if task.do == "list":
            return _names(bucket.store)
        if task.do == "check":
            _check(bucket.store)
        if task.do == "move":
            for name, md5 in task.files:
                _move(bucket.store, f"{ATTEMPTS}/{task.names[0]}/{name}", name, md5, root)
        for name in task.names:
            _remove(bucket.store, name)
    return []


def _check(store: Any) -> None:
    """Raise what the store raises for a bucket that is not there, or credentials that it refuses.

    Who may not list a bucket may be allowed to put objects into it.
    """
    import obstore

    try:
        next(iter(obstore.list(store, f"{ATTEMPTS}/", chunk_size=1)), None)
    except Exception as error:
        if not is_denied(error):
            raise
        obstore.put(store, _CHECKED, b"")
        with contextlib.suppress(Exception):
            obstore.delete(store, _CHECKED)


def _names(store: Any) -> list[str]:
    import obstore

    found = obstore.list_with_delimiter(store, f"{ATTEMPTS}/")
    return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]


def _move(store: Any, staged: str, name: str, md5: str, root: str) -> None:
    """Give the object ``staged`` its final name, in place of an object of that name.

    If another process, or an earlier one, has done so, do nothing.
    """
    import obstore

    try:
        found = obstore.head(store, staged)
        if found["size"] > _LARGEST_COPY:
            _send_again(store, staged, name)
        else:
            obstore.copy(store, staged, name)
    except FileNotFoundError:
        if not _is_there(store, name, md5):
            raise BucketError(missing_text(root, name)) from None
        return
    obstore.delete(store, staged)


def _send_again(store: Any, staged: str, name: str) -> None:
    import obstore

    found = obstore.get(store, staged)
    obstore.put(store, name, found.stream(8 << 20), attributes=found.attributes)


def _is_there(store: Any, name: str, md5: str) -> bool:
    import obstore

    try:
        found = obstore.get(store, name, options={"head": True})
    except FileNotFoundError:
        return False
    return not md5 or found.attributes.get(MD5, "") == md5


def _remove(store: Any, staging: str) -> None:
    import obstore

    for page in obstore.list(store, f"{ATTEMPTS}/{staging}/"):
        obstore.delete(store, [entry["path"] for entry in page])
