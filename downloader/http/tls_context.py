"""Make the TLS context of a session, which offers each server an earlier TLS session."""

from __future__ import annotations

from downloader.process import patching

patching.require()

import re
import ssl
from collections.abc import Callable
from functools import cache, partial
from time import monotonic
from typing import Any

from cachetools import LRUCache
from certifi import where
from urllib3.util.ssl_match_hostname import CertificateError, match_hostname

from downloader.config.config import Config
from downloader.core.session_budget import SessionBudget
from downloader.errors import BootError
from downloader.http.client_tls import load_authorities, load_client_certificate
from downloader.process.tls_defaults import secured

__all__ = ["tls_context"]

_TLS_SESSIONS = 200  # 28 kB each
_NAME_MISMATCH = 62  # X509_V_ERR_HOSTNAME_MISMATCH
_WILDCARD = re.compile(r"\*(?:\.[^.*]+){2,}").fullmatch


class _Context(ssl.SSLContext):
    """A TLS context that offers each server an earlier session for resumption.

    With a resumed session, the certificate is not sent and verified again (RFC 8446 §2.2). The server may
    refuse it.

    A session is offered as long as the server accepts it. Python copies a session through its encoded
    form, including the certificate, whenever one is read or set: 0.1 to 0.2 ms, a quarter of a handshake.
    Using a ticket more than once lets an observer link the connections to one client (RFC 8446 appendix
    C.4); the address of a downloader does so as well.
    """

    sessions: LRUCache[Any, ssl.SSLSession]
    budget: SessionBudget
    unmatched: Callable[[], _Context] | None = None
    """Returns a context like this one which leaves it to the caller to compare the name of the server."""

    def wrap_socket(self, sock: Any, *args: Any, **kwargs: Any) -> Any:
        """Do what the base class does, with the earlier session of this server.

        A name with an underscore is matched by urllib3: OpenSSL takes none for what ``*`` stands for, other
        than curl and browsers.
        """
        name = kwargs.get("server_hostname") or ""
        if "_" in name and self.unmatched is not None:
            wrapped = self.unmatched().wrap_socket(sock, *args, **kwargs)
            try:
                _match(wrapped.getpeercert(), name)
            except BaseException:
                wrapped.close()
                raise
            return wrapped
        kwargs["session"] = self.sessions.get((sock.getpeername(), name))
        return super().wrap_socket(sock, *args, **kwargs)

    def remember(self, sock: Any) -> None:
        """Store the TLS session of ``sock``, which has received data: with TLS 1.3 it comes with that."""
        if sock.session_reused:
            return
        server = sock.getpeername(), sock.server_hostname
        if self.budget.allows(server, monotonic()) and (session := sock.session) is not None:
            self.sessions[server] = session


def _match(certificate: Any, name: str) -> None:
    """Raise SSLCertVerificationError unless ``certificate``, which is valid, is for the host ``name``.

    Of the wildcards that urllib3 knows, only those count that OpenSSL accepts: a whole label, the first of
    three at least.
    """
    named = certificate.get("subjectAltName", ())
    usable = [each for each in named if "*" not in each[1] or _WILDCARD(each[1])]
    try:
        match_hostname({"subjectAltName": tuple(usable)}, name)
    except CertificateError:
        text = f"Hostname mismatch, certificate is not valid for '{name}'"
        error = ssl.SSLCertVerificationError(1, text)
        error.verify_code, error.verify_message = _NAME_MISMATCH, text
        raise error from None


def _load_certifi(context: ssl.SSLContext) -> None:
    # Distributions let certifi name the file of the system, which may not be installed.
    path = where()
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise BootError(
            f"certifi's CA certificates, {path}, cannot be used ({error.strerror or error}); install "
            "certifi again, or the system's CA certificates, or give --cacert FILE.pem"
        ) from None


def tls_context(config: Config) -> ssl.SSLContext:
    """Return the TLS context of a session.

    Raises ConfigError if a file that the user named cannot be used, and BootError if another one cannot.
    """
    context = _made(config)
    if context.check_hostname:
        context.unmatched = cache(partial(_unmatched, config))
    return context


def _unmatched(config: Config) -> _Context:
    context = _made(config)
    context.check_hostname = False
    return context


def _made(config: Config) -> _Context:
    context = secured(_Context, ssl.PROTOCOL_TLS_CLIENT)
    context.sessions, context.budget = LRUCache(_TLS_SESSIONS), SessionBudget(monotonic())
    context.set_alpn_protocols(["http/1.1"])
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        if config.cacert:
            load_authorities(context, config)
            # As curl and Python 3.13 do: what the user names is trusted as it is, also a CA below another
            # one, or the certificate of the server itself. Nothing else is trusted for that.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        else:
            _load_certifi(context)
    if config.cert:
        load_client_certificate(context, config)
    return context
