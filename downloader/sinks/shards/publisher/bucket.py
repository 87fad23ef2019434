"""Put the files of shards into a bucket of S3 or a store like it, with obstore.

Each file is put as a whole: it appears when all of its parts have arrived. Every request has the SHA-256
of its body, which the server compares. The MD5 of the whole file is kept as metadata of the object: one
that is there with the same MD5 and size is not sent again.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import re
from typing import Any, Final, NoReturn

from downloader.sinks.shards.files import PUBLISHING
from downloader.sinks.shards.jobs import PublisherSettings
from downloader.sinks.shards.stats import ShardStats, read_stats, stats_directory

__all__ = ["Bucket", "BucketError"]

_MD5: Final = "downloader-md5"
_CHUNK: Final = 8 << 20
_MOST_CHUNKS: Final = 10_000  # of an upload, in S3
_AT_ONCE: Final = 2
_REQUEST_WITHIN: Final = datetime.timedelta(minutes=5)
# Asked for the credentials of a machine at AWS when there are no others.
_METADATA_SERVICE: Final = ("/latest/api/token", "/latest/meta-data/iam")
_code = re.compile(r"<Code>(\w{1,60})</Code>").search
_types: Final = {
    ".json": "application/json",
    ".tar": "application/x-tar",
    ".parquet": "application/vnd.apache.parquet",
}


class BucketError(Exception):
    """The bucket refused or could not be reached; the message says why, and what to do next."""


class Bucket:
    """See ``Place``. Temporary files, and copies of the stats, are in ``settings.home``.

    Raises BucketError.
    """

    def __init__(self, settings: PublisherSettings) -> None:
        self._home = settings.home
        self._copies = stats_directory(settings.home)
        os.makedirs(self._copies, exist_ok=True)
        name, _, prefix = settings.root.removeprefix("s3://").partition("/")
        try:
            self._store = _open(name, prefix.strip("/"), settings)
        except Exception as error:
            _refused(error)

    def temporary(self, name: str) -> str:
        return os.path.join(self._home, f"{PUBLISHING}{name}")

    def can_take(self, path: str) -> bool:
        return True

    def publish(self, path: str, name: str, md5: str) -> None:
        import obstore

        size = os.path.getsize(path)
        digest = md5 or _md5(path)
        try:
            if self._found(name) != (size, digest):
                with open(path, "rb") as file:
                    obstore.put(
                        self._store,
                        name,
                        file,
                        attributes={_MD5: digest, "Content-Type": _type(name)},
                        chunk_size=max(_CHUNK, size // _MOST_CHUNKS + 1),
                        max_concurrency=_AT_ONCE,
                    )
        except Exception as error:
            _refused(error)
        if path == self.temporary(name):
            os.unlink(path)

    def _found(self, name: str) -> tuple[int, str] | None:
        """Return size and MD5 of an object that was put earlier, None if there is none."""
        import obstore

        try:
            found = obstore.get(self._store, name, options={"head": True})
        except FileNotFoundError:
            return None
        return found.meta["size"], found.attributes.get(_MD5, "")

    def record(self, stats: bytes, name: str) -> None:
        path = self.temporary(name)
        with open(path, "wb") as file:
            file.write(stats)
        os.replace(path, os.path.join(self._copies, name))

    def published(self, name: str) -> ShardStats | None:
        return read_stats(os.path.join(self._copies, name))


def _open(bucket: str, prefix: str, settings: PublisherSettings) -> Any:
    """Return the store: credentials and region from the environment or a profile, as AWS's own tools do."""
    from obstore.store import S3Store

    options: dict[str, Any] = {"checksum_algorithm": "SHA256"}
    endpoint = settings.endpoint_url or os.environ.get(
        "AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL", "")
    )
    if endpoint:
        options["endpoint"] = endpoint
    if settings.region:
        options["region"] = settings.region
    if not {"AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE"} & os.environ.keys():
        with contextlib.suppress(ImportError):
            import boto3
            from obstore.auth.boto3 import Boto3CredentialProvider

            session = boto3.session.Session()
            if session.get_credentials() is not None:
                options["credential_provider"] = Boto3CredentialProvider(session)
                if session.region_name:
                    options.setdefault("region", session.region_name)
    client: Any = {"allow_http": endpoint.startswith("http://"), "timeout": _REQUEST_WITHIN}
    return S3Store(bucket, prefix=prefix or None, client_options=client, **options)


def _md5(path: str) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _type(name: str) -> str:
    return _types.get(os.path.splitext(name)[1], "application/octet-stream")


def _refused(error: Exception) -> NoReturn:
    """Raise the BucketError that ``error``, of obstore or boto3, means; that of a local file as it is."""
    if isinstance(error, OSError) and error.errno:
        raise error
    text = str(error)
    code = _code(text)
    if code and code[1] == "NoSuchBucket":
        why = "the bucket does not exist; create it, and run the same command again"
    elif type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        shown = f" ({code[1]})" if code else ""
        why = f"access is denied{shown}; check the credentials and the rights of their owner"
    elif any(path in text for path in _METADATA_SERVICE):
        why = (
            "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, "
            "and run the same command again"
        )
    elif "error sending request" in text:
        why = "the server cannot be reached; check --endpoint-url, and run the same command again"
    else:
        first = " ".join(text.partition("Debug source")[0].split())
        why = f"{code[1] + ': ' if code else ''}{first[:300]}; run the same command again"
    raise BucketError(why) from error
