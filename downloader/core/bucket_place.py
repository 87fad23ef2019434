"""Tell places in a bucket, ``s3://BUCKET/PREFIX``, from directories."""

from __future__ import annotations

__all__ = ["bucket_and_prefix", "is_bucket"]

_SCHEME = "s3://"


def is_bucket(place: str) -> bool:
    """Return whether ``place`` is in a bucket."""
    return place.startswith(_SCHEME)


def bucket_and_prefix(place: str) -> tuple[str, str]:
    """Return the bucket of ``place`` and the prefix in it, each "" if it is missing."""
    bucket, _, prefix = place.removeprefix(_SCHEME).partition("/")
    return bucket, prefix.strip("/")
