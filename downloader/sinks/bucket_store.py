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

import certifi

from downloader.core.bucket_access import BucketAccess
from downloader.core.bucket_place import bucket_and_prefix, endpoint_problem, prefix_problem
from downloader.core.naming import shown
from downloader.core.redact import redact_url
from downloader.errors import ConfigError, DownloaderError
from downloader.files.memory_file import as_file

__all__ = [
    "NODE",
    "BucketError",
    "endpoint_of",
    "is_denied",
    "is_told",
    "lacks_conditions",
    "open_bucket",
    "refused",
    "translated",
]

NODE: Final = "DOWNLOADER_NODE"
"""In the environment of the processes of a slice: the name of the node, for messages."""
# An answer has to begin, and to go on, in so many seconds. Those count from the request's first byte on, so
# that sending takes of them, and what the store does by itself before it answers.
_ANSWER_WITHIN: Final = 30
_SLOWEST_LINE: Final = 64 << 10  # bytes a second
_SLOWEST_STORE: Final = 8 << 20
_REQUEST_WITHIN: Final = datetime.timedelta(hours=1)  # an answer that never ends
# A signature is valid for 15 minutes, and a request that is repeated keeps it.
_LONGEST_RETRIES: Final = 840
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
# What obstore and boto3 take for themselves, and a run only where it is asked to.
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_TRUSTED: Final = "SSL_CERT_FILE"
_AMBIENT: Final = (
    *_PROXIES,
    *map(str.upper, _PROXIES),
    "AWS_PROXY_URL",
    "AWS_PROXY_EXCLUDES",
    "AWS_PROXY_CA_CERTIFICATE",
    "AWS_ALLOW_INVALID_CERTIFICATES",
    _TRUSTED,
    "SSL_CERT_DIR",
)
_has_control = re.compile(r"[\x00-\x1f\x7f]").search
_denied = re.compile(r"status code: 40[13]\b").search
_unknown = re.compile(r"status code: 501\b|\b501 Not Implemented\b|<Code>NotImplemented<").search
# As obstore's errors have the reasons of rustls and of hyper's tunnels.
_untrusted = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)").search
_proxy_login = re.compile(r"\bProxyAuthRequired\b|status code: 407\b").search
_no_tunnel = re.compile(r"\bTunnelUn\w+|\bProxyHeadersTooLong\b").search
# As obstore's errors say that an answer is none, or has not come.
_down = re.compile(r"status code: (?:408|429|5(?!01)\d\d)\b|HTTP error: |<Code>SlowDown<").search
_no_name = re.compile(r"\bdns error\b|failed to lookup address").search
_code = re.compile(r"<Code>(\w{1,60})</Code>").search


class BucketError(Exception):
    """The bucket refused or could not be reached; the message says why, and what to do next.

    ``lasting``: it will refuse again until somebody has changed something. ``passing``: it is down or
    overloaded, and will be there again. ``doubtful``: it may be either.
    """

    lasting = False
    passing = False
    doubtful = False


def open_bucket(root: str, access: BucketAccess, *, sent: int = 0, whole: int = 0) -> Any:
    """Return the obstore store of ``root``, s3://BUCKET/PREFIX.

    ``sent``: how many bytes a request may have to send. ``whole``: how large the objects are that the store
    copies, or puts together from their parts. Each request is repeated for some seconds, and with ``whole``
    for half a minute, so that not all parts are sent again because of one; see also ``bucket_patience``.

    Credentials come from the environment or a profile, as AWS's own tools take them; so do endpoint and
    region where ``access`` has none. Proxies and trusted certificates are those of ``access`` only. Raises
    BucketError, and ConfigError where one of them cannot be what it should: obstore ends in a panic of Rust
    for some, and in a failed request for others.
    """
    name, prefix = bucket_and_prefix(root)
    if problem := prefix_problem(root):
        raise ConfigError(f"{shown(root)}: {problem}")
    endpoint = endpoint_of(access.endpoint_url)
    given = {"--region": access.region} | {name: os.environ.get(name, "") for name in _FIELDS}
    for option, value in given.items():
        if _has_control(value):
            raise ConfigError(f"{option} has a line break, or another control character; leave that out")
    # What is left of panics is told in one line, and not with the stack of Rust's functions.
    os.environ["RUST_BACKTRACE"] = "0"
    with translated(), _environment(access):
        return _open(name, prefix, endpoint, access, sent, whole)


def endpoint_of(given: str) -> str:
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


@contextlib.contextmanager
def _environment(access: BucketAccess) -> Iterator[None]:
    """Let the environment say what obstore takes from there alone, while it makes a client in the block.

    It takes proxies that nobody asked for, and the certificates that it trusts: it can be given more of
    these, but none in place of the system's. It is the environment of this process, which is ours, or is
    given back.
    """
    before = {name: os.environ.pop(name) for name in _AMBIENT if name in os.environ}
    pem = access.authorities
    try:
        with as_file(pem) if pem else contextlib.nullcontext(certifi.where()) as path:
            os.environ[_TRUSTED] = path
            yield
    finally:
        os.environ.pop(_TRUSTED, None)
        os.environ.update(before)


def _open(bucket: str, prefix: str, endpoint: str, access: BucketAccess, sent: int, whole: int) -> Any:
    from obstore.store import S3Store

    within = _ANSWER_WITHIN + max(sent // _SLOWEST_LINE, whole // _SLOWEST_STORE)
    options: dict[str, Any] = {"checksum_algorithm": "SHA256", "retry_config": _retries(within, whole)}
    if endpoint:
        options["endpoint"] = endpoint
    if access.region:
        options["region"] = access.region
    proxy = access.proxy(endpoint)
    if not {"AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE"} & os.environ.keys():
        with contextlib.suppress(ImportError):
            import boto3
            import botocore.config
            import botocore.session
            from obstore.auth.boto3 import Boto3CredentialProvider

            # Its own requests, for a role or a login, are for the same proxy.
            asking = botocore.session.Session()
            asking.set_default_client_config(
                botocore.config.Config(proxies=dict.fromkeys(("http", "https"), proxy) if proxy else {})
            )
            session = boto3.session.Session(botocore_session=asking)
            if session.get_credentials() is not None:
                options["credential_provider"] = Boto3CredentialProvider(session)
                if session.region_name:
                    options.setdefault("region", session.region_name)
    is_plain = endpoint[:5].lower() == "http:"
    client: Any = {
        "allow_http": is_plain,
        "read_timeout": datetime.timedelta(seconds=within),
        "timeout": _REQUEST_WITHIN,
    }
    if proxy:
        client |= {"proxy_url": proxy, "proxy_excludes": access.proxy_excludes(endpoint)}
    if access.insecure:
        client["allow_invalid_certificates"] = True
    return S3Store(bucket, prefix=prefix or None, client_options=client, **options)


def _retries(within: int, whole: int) -> Any:
    """Return how obstore repeats a request whose answer has to begin in ``within`` seconds.

    It does so whatever the reason is, also where a certificate is refused.
    """
    seconds = datetime.timedelta(seconds=1)
    # One without an answer in time is sent twice more; a small one, for which somebody may wait, is not.
    longest = min(3 * within, _LONGEST_RETRIES) if within > _ANSWER_WITHIN else within - 1
    first, most = (0.5, 5.0) if whole else (0.1, 0.6)
    return {
        "max_retries": 10,
        "retry_timeout": longest * seconds,
        "backoff": {"init_backoff": first * seconds, "max_backoff": most * seconds},
    }


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


def is_told(store: Any, name: str) -> bool:
    """Return whether there is an object of this name, False where that is not told."""
    import obstore

    try:
        obstore.head(store, name)
    except FileNotFoundError:
        return False
    except Exception as error:
        if is_denied(error):
            return False
        raise
    return True


def lacks_conditions(error: Exception) -> bool:
    """Return whether ``error``, of obstore, says that the store knows no request with ``If-None-Match``."""
    return _unknown(str(error)) is not None


def refused(error: BaseException) -> NoReturn:
    """Raise the BucketError that ``error``, of obstore or boto3, means; that of a local file as it is."""
    if isinstance(error, OSError) and error.errno:
        raise error
    text = str(error)
    code = _code(text)
    lasting, passing, doubtful = True, False, False
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
    elif found := _untrusted(text):
        why = f"{_certificate_problem(found[1])}, and run the same command again"
    elif _proxy_login(text):
        why = (
            "the proxy refuses its login, or wants one; give --proxy http://USER:PASSWORD@HOST:PORT, or "
            "correct it, and run the same command again"
        )
    elif _no_tunnel(text):
        why = "the proxy leads to no server; check --proxy, and run the same command again"
        lasting, doubtful = False, True
    elif "error sending request" in text:
        why = (
            "the server cannot be reached; check --endpoint-url, and --proxy if it is given, and run the "
            "same command again"
        )
        lasting, doubtful = False, _no_name(text) is not None
        passing = not doubtful
    else:
        lasting, passing = False, _down(text) is not None
        first = " ".join(text.partition("Debug source")[0].split())
        why = f"{code[1] + ': ' if code else ''}{first[:300]}; run the same command again"
    refusal = BucketError(why)
    refusal.lasting, refusal.passing, refusal.doubtful = lasting, passing, doubtful
    raise refusal from error


def _certificate_problem(reason: str) -> str:
    """Return why a certificate is refused, by the word of rustls, and what to do about it."""
    if reason.startswith("Expired"):
        return "the certificate of the server has expired; renew it, or check the clock of this machine"
    if reason.startswith("NotValidForName"):
        return "the certificate of the server is for another host; check --endpoint-url"
    if reason == "UnknownIssuer":
        return "the certificate of the server is not trusted; name its CA with --cacert FILE.pem or system"
    return (
        f"the certificate of the server is refused ({reason}); name the CA that has signed it with "
        "--cacert FILE.pem"
    )


def _no_credentials() -> str:
    """Return the message about missing credentials, which names the place where they are missing."""
    names = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE,"
    if NODE in os.environ:
        return (
            f"no credentials were found on node {os.environ[NODE]}; set {names} in the environment of its "
            "`ray start` (that of the driver is not passed on), and run the same command again"
        )
    return f"no credentials were found; set {names} and run the same command again"
