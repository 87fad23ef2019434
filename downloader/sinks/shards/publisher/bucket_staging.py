"""Move the objects of attempts to their final names, within a bucket; see ``sinks.shards.staging``.

Also look for a dataset that is there already, and for shards that were published.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from downloader.sinks.bucket_store import BucketError, is_denied, is_told
from downloader.sinks.shards.files import INDEX, SIZES
from downloader.sinks.shards.publisher.bucket import MD5, Bucket
from downloader.sinks.shards.staging import ATTEMPTS, missing_text
from downloader.sinks.shards.staging_bucket import BucketAnswer, BucketTask
from downloader.sinks.shards.stats import IS_OURS
from downloader.sinks.taken_names import NameTaken

__all__ = ["carry_out"]

_CHECKED = ".downloader/check"
_LARGEST_COPY = 5 << 30  # of one request, in S3
# Of a dataset that begins with shard 0, as most do, and of its end: asked for one by one.
_FIRST = ("00000.tar", "00000.parquet", "00000_stats.json", INDEX, SIZES)
_BEHIND_DIGITS = ":"
_MOST_PAGES = 100  # of 1,000 names
_digits = re.compile("[0-9]+").match


def carry_out(task: BucketTask, bucket: Bucket, root: str) -> BucketAnswer:
    """Do what ``task`` says; return what it asks for. Raises BucketError, NameTaken."""
    replaced, ask, store = 0, bucket.patience, bucket.store
    if task.do == "list":
        return BucketAnswer(ask(lambda: _names(store)))
    if task.do == "find":
        return BucketAnswer(ask(lambda: _dataset(store)))
    if task.do == "look":
        return ask(lambda: _published(store, task.files))
    if task.do == "check":
        ask(lambda: _check(store))
    if task.do == "move":
        for name, md5 in task.files:
            replaced += _move(bucket, f"{ATTEMPTS}/{task.names[0]}/{name}", name, md5, root, task.existing)
    for name in task.names:
        ask(partial(_remove, store, name))
    return BucketAnswer(replaced=replaced)


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


def _dataset(store: Any) -> list[str]:
    """Return the name of an object that may be of a dataset of shards, none if there is none.

    Each of these names begins with a digit, but for those in ``_FIRST``. One page is taken after the other,
    up to the digits, or as far as is reasonable; all that is behind a prefix of its own costs one request.
    Who may not list a bucket is told about the names in ``_FIRST``, if that is allowed.
    """
    import obstore

    try:
        after: str | None = None
        for _ in range(_MOST_PAGES):
            entries: Sequence[Any] = next(iter(obstore.list(store, offset=after, chunk_size=1000)), ())
            names = [entry["path"] for entry in entries]
            if found := next(filter(IS_OURS, names), None):
                return [found]
            if not names or names[-1] > _BEHIND_DIGITS:
                break
            prefix, slash, _ = names[-1].partition("/")
            after = prefix + chr(ord("/") + 1) if slash else names[-1]
    except Exception as error:
        if not is_denied(error):
            raise
    return [name for name in _FIRST if is_told(store, name)][:1]


def _published(store: Any, files: Sequence[tuple[str, str]]) -> BucketAnswer:
    """Return the answer to ``StagingBucket.look``: ``files`` of the first shard, the last, some between.

    They are asked for one by one, up to one that is there. If none is, one page from the first shard on
    decides: just these may have been removed, or the credentials may only list.
    """
    import obstore

    denied, other = False, ""
    for name, md5 in files:
        try:
            found = obstore.get(store, name, options={"head": True})
        except FileNotFoundError:
            continue
        except Exception as error:
            if not is_denied(error):
                raise
            denied = True
            continue
        if not md5 or found.attributes.get(MD5, md5) == md5:
            return BucketAnswer([name])
        other = other or name
    if other:
        return BucketAnswer(other=other)
    names = [name for name, _ in files]
    numbers = sorted(map(_number, names))
    try:
        for folder in dict.fromkeys(map(os.path.dirname, names)):
            below = f"{folder}/" if folder else ""
            pages = obstore.list(store, below or None, offset=f"{below}{numbers[0]:05d}", chunk_size=1000)
            page: Sequence[Any] = next(iter(pages), ())
            for path in (entry["path"] for entry in page):
                leaf = path.removeprefix(below)
                if IS_OURS(leaf) and numbers[0] <= _number(leaf) <= numbers[-1]:
                    return BucketAnswer([path])
    except Exception as error:
        if not is_denied(error):
            raise
        return BucketAnswer(names[:1] if denied else [])
    return BucketAnswer()


def _number(name: str) -> int:
    """Return the number of the shard that has a file of this name, -1 for an index."""
    digits = _digits(os.path.basename(name))
    return int(digits[0]) if digits else -1


def _names(store: Any) -> list[str]:
    import obstore

    found = obstore.list_with_delimiter(store, f"{ATTEMPTS}/")
    return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]


def _move(bucket: Bucket, staged: str, name: str, md5: str, root: str, existing: str) -> bool:
    """Give the object ``staged`` its final name; return whether that replaced one of somebody else.

    If another process, or an earlier one, has done so, do nothing. Raises NameTaken.
    """
    return bucket.patience(lambda: _move_once(bucket, staged, name, md5, root, existing))


def _move_once(bucket: Bucket, staged: str, name: str, md5: str, root: str, existing: str) -> bool:
    import obstore

    store = bucket.store
    try:
        mine = obstore.get(store, staged, options={"head": True})
        size = mine.meta["size"]
        there = bucket.found(name)
        is_copied = there == (size, mine.attributes.get(MD5, ""))
        if there is not None and not is_copied and existing != "replace":
            raise NameTaken(root, name)
        if size > _LARGEST_COPY:
            _send_again(bucket.store_for(size), staged, name)
        else:
            obstore.copy(bucket.store_for(size), staged, name)
    except FileNotFoundError:
        if not _is_there(store, name, md5):
            raise BucketError(missing_text(root, name)) from None
        return False
    obstore.delete(store, staged)
    return there is not None and not is_copied


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
