"""Translate exceptions of requests, urllib3 and the standard library to ``FetchError``, in one place.

requests wraps exceptions of urllib3, which wraps those of http.client, ssl and socket. The innermost
exception says what happened.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import errno
import http.client
import socket
import ssl
from collections.abc import Iterator
from time import time
from typing import Any

import gevent
import requests.exceptions as rq
import urllib3.exceptions as u3

from downloader.config.options import LimitOptions
from downloader.config.system_authorities import SYSTEM
from downloader.core.naming import shown
from downloader.core.redact import redact
from downloader.core.retry import parse_retry_after
from downloader.core.throughput import SPAN
from downloader.core.units import show_size, show_time
from downloader.errors import FetchError

__all__ = [
    "IDLE_TIMEOUT",
    "PROXY_LOGIN",
    "HandshakeCut",
    "Preempted",
    "below_min_speed",
    "deadline_exceeded",
    "is_reset",
    "is_stale",
    "is_tls_end",
    "proxy_login_refused",
    "refusal",
    "translate",
]

PROXY_LOGIN = 407
"""The status with which a proxy refuses the credentials that it was sent, or that it was sent none."""

IDLE_TIMEOUT = "http-408"
"""The failure that also a connection ends with, unrequested, which the server closes since it is idle."""

# The last is what a socket says of itself once its connection was reset.
_RESET = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENOTCONN}
# The second is for a name that exists and has no address. It is deprecated, and not in every system.
_NO_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
_PROXY_ADVICE = "; give its user and password in --proxy http://USER:PASSWORD@HOST:PORT, or correct them"
_NO_TUNNEL = "Tunnel connection failed: "  # http.client's words before the status of a proxy
_NAME_MISMATCH = {62, 64}  # of a host, of an IP address
_NOT_IN_TIME = {9, 10}  # not yet, no longer
_TOO_WEAK = {66, 67, 68}  # its key, the key of a CA, the digest that a CA has signed
_UNKNOWN_ISSUER = {2, 18, 19, 20, 21, 27}  # not there, self-signed, first of its chain, not trusted
_UNEXPECTED_EOF = "UNEXPECTED_EOF_WHILE_READING"
_VERSION_WORDS = (
    "UNSUPPORTED_PROTOCOL",
    "PROTOCOL_VERSION",
    "VERSION_TOO_LOW",
    "WRONG_SSL_VERSION",
)


class HandshakeCut(ssl.SSLError):
    """The connection ended in the TLS handshake; a plain SSLEOFError means that it ended later."""


def is_reset(error: BaseException) -> bool:
    """Return whether ``error`` says that an open connection was reset, before or while it was used."""
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno in _RESET


def is_tls_end(error: BaseException) -> bool:
    """Return whether ``error`` says that a TLS connection has ended, with or without close_notify."""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return True
    # Python up to 3.11.2 has no class for it where OpenSSL is of version 3.
    return isinstance(error, ssl.SSLError) and getattr(error, "reason", "") == _UNEXPECTED_EOF


class Stranded(gevent.GreenletExit):  # type: ignore[misc]  # gevent has no types
    """The request in this greenlet is to be sent again on another connection: see ``core.preemption``."""


class Preempted(gevent.GreenletExit):  # type: ignore[misc]  # gevent has no types
    """The attempt in this greenlet is to end, since others are worth more: see ``core.preemption``."""


def translate(error: BaseException, secrets: tuple[str, ...] = (), cacert: str = "") -> FetchError:
    """Return the FetchError for ``error``, raised by requests, urllib3 or below, with redacted text.

    ``cacert``: the value of --cacert, for the advice.
    """
    if isinstance(error, FetchError):
        return error
    chain = list(_chain(error))
    code = _code(chain)
    failed = FetchError(code, shown(redact(_sentence(chain, code), secrets)) + _advice(chain, code, cacert))
    refused = code == "proxy" and _is_login_refused(chain)
    failed.permanent = refused or (code == "dns" and _name_does_not_exist(chain))
    failed.unreachable = code in ("connect-timeout", "dns") and any(
        getattr(each, "unreachable", False) for each in chain
    )
    failed.turned_away = any(getattr(each, "turned_away", False) for each in chain)
    return failed


def refusal(status: int, retry_after: str | None, date: str | None) -> FetchError:
    """Return the failure of a request that was answered with ``status``, from 400 on.

    ``retry_after``, ``date``: the fields Retry-After and Date of the response.
    """
    return FetchError(f"http-{status}", "", parse_retry_after(retry_after, time(), date))


def refusal_of(response: Any) -> FetchError:
    """Return the failure that ``response`` of urllib3 means, whose status is 400 or above."""
    return refusal(response.status, response.headers.get("Retry-After"), response.headers.get("Date"))


def proxy_login_refused() -> FetchError:
    """Return the failure of a request that a proxy has refused in place of the server."""
    failed = FetchError("proxy", f"the proxy answered {PROXY_LOGIN}{_PROXY_ADVICE}")
    failed.permanent = True  # the same credentials again may lock the account
    return failed


def deadline_exceeded(config: LimitOptions) -> FetchError:
    """Return the failure of an attempt that exceeds --deadline."""
    return FetchError("timeout", f"took longer than --deadline {show_time(config.deadline)}")


def below_min_speed(config: LimitOptions) -> FetchError:
    """Return the failure of an attempt whose body arrives more slowly than --min-speed."""
    speed, span = show_size(config.min_speed), show_time(SPAN)
    return FetchError("slow", f"slower than --min-speed {speed} a second for {span}")


def is_stale(error: BaseException) -> bool:
    """Return whether ``error`` only means that an idle connection was closed before it was reused.

    See ``http.connection_pool``.
    """
    return any(getattr(each, "stale", False) for each in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions from the outermost to the innermost: reason and arguments, then causes."""
    seen: set[int] = set()
    queue = [error]
    while queue:
        at = queue.pop(0)
        if id(at) in seen:
            continue
        seen.add(id(at))
        yield at
        inner = [getattr(at, "reason", None), *at.args, at.__cause__, at.__context__]
        queue += [each for each in inner if isinstance(each, BaseException)]


def _code(chain: list[BaseException]) -> str:
    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(each, kinds) for each in chain)

    if has(u3.ProxyError, rq.ProxyError, rq.InvalidProxyURL):
        return "proxy"
    if has(ssl.SSLCertVerificationError):
        return "tls-verify"
    if has(socket.gaierror, u3.NameResolutionError):
        return "dns"
    if any(map(is_tls_end, chain)) and not has(HandshakeCut):
        return "reset"
    if has(ssl.SSLError):
        return _tls_code(chain)
    if has(u3.NewConnectionError):  # a kind of ConnectTimeoutError, as urllib3 has it
        return "connect"
    if has(u3.ConnectTimeoutError, rq.ConnectTimeout):
        return "connect-timeout"
    if has(u3.ReadTimeoutError, rq.ReadTimeout, TimeoutError):
        return "read-timeout"
    return _response_code(chain)


def _response_code(chain: list[BaseException]) -> str:
    """Return the code of a failure after the connection was established."""

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(each, kinds) for each in chain)

    if has(rq.InvalidURL, rq.MissingSchema, rq.InvalidSchema, u3.LocationParseError, UnicodeError):
        return "bad-url"
    if has(http.client.RemoteDisconnected):
        return "reset"
    if has(u3.InvalidChunkLength):
        # An empty length means that the connection ended between two chunks.
        cut = any(isinstance(e, u3.InvalidChunkLength) and not e.length for e in chain)
        return "truncated" if cut else "protocol"
    if has(http.client.IncompleteRead, u3.IncompleteRead):
        return "truncated"
    if has(ConnectionResetError, BrokenPipeError, ConnectionAbortedError):
        return "reset"
    if has(
        http.client.HTTPException,
        u3.InvalidHeader,
        rq.InvalidHeader,
        u3.ProtocolError,
        u3.DecodeError,
    ):
        return "protocol"
    if any(map(is_reset, chain)):
        return "reset"
    if has(OSError):
        return "connect"
    return "internal"


def _name_does_not_exist(chain: list[BaseException]) -> bool:
    """Return whether a name server said so: other failures to resolve a name may pass."""
    return any(isinstance(each, socket.gaierror) and each.errno in _NO_NAME for each in chain)


def _is_login_refused(chain: list[BaseException]) -> bool:
    """Return whether a proxy has refused a tunnel for its credentials, or for their lack."""
    return any(f"{_NO_TUNNEL}{PROXY_LOGIN}" in str(each) for each in chain)


def _advice(chain: list[BaseException], code: str, cacert: str) -> str:
    """Return what to do about a certificate, by OpenSSL's X509_V_ERR_…, or a proxy; else ""."""
    verify_code = next((e.verify_code for e in chain if isinstance(e, ssl.SSLCertVerificationError)), 0)
    if code == "proxy" and _is_login_refused(chain):
        return _PROXY_ADVICE
    if code != "tls-verify" or not verify_code:
        return ""
    if verify_code in _NAME_MISMATCH:
        return "; ask for the server by a name that its certificate has"
    if verify_code in _NOT_IN_TIME:
        return "; the server needs a new one, or this machine's clock is wrong"
    if verify_code in _TOO_WEAK:
        return "; the server needs one with a stronger key and signature, no --cacert helps"
    if verify_code not in _UNKNOWN_ISSUER:
        return "; the server needs another one"
    if cacert == SYSTEM:
        return (
            "; if you trust this server, name its CA with --cacert FILE.pem, or install it on this system "
            "(update-ca-certificates or update-ca-trust)"
        )
    return (
        "; if you trust this server, name its CA with --cacert FILE.pem, or use those of the system with "
        "--cacert system"
    )


def _tls_code(chain: list[BaseException]) -> str:
    errors = [each for each in chain if isinstance(each, ssl.SSLError)]
    text = " ".join(str(each) for each in errors).upper().replace(" ", "_")
    if any(word in text for word in _VERSION_WORDS):
        return "tls-version"
    return "tls-handshake"


def _sentence(chain: list[BaseException], code: str) -> str:
    """Return the innermost text that is not empty or an object's repr; ``code`` if there is none."""
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return each.verify_message.rstrip(".") or "the certificate does not verify"
    for each in reversed(chain):
        if isinstance(each, OSError) and each.strerror:
            return f"{each.strerror}"
    for each in reversed(chain):
        text = str(each)
        if text.startswith(_NO_TUNNEL):
            return f"the proxy answered {text.removeprefix(_NO_TUNNEL)}"
        if text and not text.startswith("<"):
            return f"{type(each).__name__}: {text}"
    return code
