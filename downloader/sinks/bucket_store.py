"""Open buckets of S3 and of stores like it with obstore, and say why one refuses.

obstore starts threads: a process that is to fork, or that gevent has patched, must not call this.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from downloader.core.bucket_place import bucket_and_prefix, endpoint_problem, prefix_problem
from downloader.core.naming import shown
from downloader.core.redact import redact_url
from downloader.errors import ConfigError, DownloaderError

__all__ = ["NODE", "BucketError", "is_denied", "open_bucket", "refused", "translated"]

NODE: Final = "DOWNLOADER_NODE"
"""In the environment of the processes of a slice: the name of the node, for messages."""
_REQUEST_WITHIN: Final = datetime.timedelta(minutes=5)
# Asked for the credentials of a machine at AWS when there are no others.
_METADATA_SERVICE: Final = ("/latest/api/token", "/latest/meta-data/iam")
# obstore takes these, the first before the others; the last one is its own.
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# They become fields of a header.
_FIELDS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
_has_control = re.compile(r"[\x00-\x1f\x7f]").search
_denied = re.compile(r"status code: 40[13]\b").search
_code = re.compile(r"<Code>(\w{1,60})</Code>").search


class BucketError(Exception):
    """The bucket refused or could not be reached; the message says why, and what to do next.

    ``lasting``: it will refuse again until somebody has changed something.
    """

    lasting = False


def open_bucket(root: str, endpoint_url: str, region: str) -> Any:
    """Return the obstore store of ``root``, s3://BUCKET/PREFIX.

    Credentials come from the environment or a profile, as AWS's own tools take them; so do ``endpoint_url``
    and ``region`` where they are "". Raises BucketError, and ConfigError where one of them cannot be what
    it should: obstore ends in a panic of Rust for some, and in a failed request for others.
    """
    name, prefix = bucket_and_prefix(root)
    if problem := prefix_problem(root):
        raise ConfigError(f"{shown(root)}: {problem}")
    endpoint = _endpoint(endpoint_url)
    given = {"--region": region} | {name: os.environ.get(name, "") for name in _FIELDS}
    for option, value in given.items():
        if _has_control(value):
            raise ConfigError(f"{option} has a line break, or another control character; leave that out")
    # What is left of panics is told in one line, and not with the stack of Rust's functions.
    os.environ["RUST_BACKTRACE"] = "0"
    with translated():
        return _open(name, prefix, endpoint, region)


def _endpoint(given: str) -> str:
    """Return the address of the store, "" for that of AWS. Raises ConfigError."""
    for name in _ENDPOINTS:
        if os.environ.get(name) == "":
            del os.environ[name]  # no address, which obstore takes for one
    found = {"--endpoint-url": given} | {name: os.environ.get(name, "") for name in _ENDPOINTS}
    for option, url in found.items():
        if url and (problem := endpoint_problem(url)):
            raise ConfigError(f"{option} {shown(redact_url(url))}: {problem}")
        if url:
            return url
    return ""


def _open(bucket: str, prefix: str, endpoint: str, region: str) -> Any:
    from obstore.store import S3Store

    options: dict[str, Any] = {"checksum_algorithm": "SHA256"}
    if endpoint:
        options["endpoint"] = endpoint
    if region:
        options["region"] = region
    if not {"AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE"} & os.environ.keys():
        with contextlib.suppress(ImportError):
            import boto3
            from obstore.auth.boto3 import Boto3CredentialProvider

            session = boto3.session.Session()
            if session.get_credentials() is not None:
                options["credential_provider"] = Boto3CredentialProvider(session)
                if session.region_name:
                    options.setdefault("region", session.region_name)
    is_plain = endpoint[:5].lower() == "http:"
    client: Any = {"allow_http": is_plain, "timeout": _REQUEST_WITHIN}
    return S3Store(bucket, prefix=prefix or None, client_options=client, **options)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise the BucketError that an error of obstore or boto3 in the block means; see ``refused``.

    So is a panic of Rust, which is no Exception, and would end the process with a traceback.
    """
    try:
        yield
    except (BucketError, DownloaderError):
        raise
    except Exception as error:
        refused(error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        refused(error)


def is_denied(error: Exception) -> bool:
    """Return whether ``error``, of obstore, says that the credentials have no right to do that."""
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return True
    return _denied(str(error)) is not None  # obstore names the kind of some requests' errors only


def refused(error: BaseException) -> NoReturn:
    """Raise the BucketError that ``error``, of obstore or boto3, means; that of a local file as it is."""
    if isinstance(error, OSError) and error.errno:
        raise error
    text = str(error)
    code = _code(text)
    lasting = True
    if not isinstance(error, Exception):
        why = (
            f"obstore ended in a panic ({' '.join(text.split())[:200]}); check --endpoint-url, --region "
            "and the credentials in the environment, and run the same command again"
        )
    elif code and code[1] == "NoSuchBucket":
        why = "the bucket does not exist; create it, and run the same command again"
    elif any(path in text for path in _METADATA_SERVICE):  # which may refuse, too
        why = _no_credentials()
    elif is_denied(error):
        shown = f" ({code[1]})" if code else ""
        why = f"access is denied{shown}; check the credentials and the rights of their owner"
    elif "error sending request" in text:
        why = "the server cannot be reached; check --endpoint-url, and run the same command again"
        lasting = False
    else:
        lasting = False
        first = " ".join(text.partition("Debug source")[0].split())
        why = f"{code[1] + ': ' if code else ''}{first[:300]}; run the same command again"
    found = BucketError(why)
    found.lasting = lasting
    raise found from error


def _no_credentials() -> str:
    """Return the message about missing credentials, which names the place where they are missing."""
    names = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE,"
    if NODE in os.environ:
        return (
            f"no credentials were found on node {os.environ[NODE]}; set {names} in the environment of its "
            "`ray start` (that of the driver is not passed on), and run the same command again"
        )
    return f"no credentials were found; set {names} and run the same command again"
