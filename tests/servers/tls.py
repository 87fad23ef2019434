"""Make certificates of every kind, once per directory."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from enum import Enum
from pathlib import Path

import trustme


class Tls(Enum):
    """The TLS settings of a server."""

    GOOD = "good"
    EXPIRED = "expired"
    WRONG_HOST = "wrong host"
    UNKNOWN_CA = "unknown CA"
    OLD = "TLS 1.1 only"


class Certificates:
    """A CA whose certificate is in the file ``ca`` (for --cacert), and contexts for servers."""

    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self.ca = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def pem(self, path: Path) -> Path:
        """Write key and certificate of a server at 127.0.0.1 to ``path``, and return that."""
        self._ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def context(self, kind: Tls = Tls.GOOD, hosts: Iterable[str] = ("127.0.0.1",)) -> ssl.SSLContext:
        """Return a context for a server at ``hosts``."""
        ca = trustme.CA() if kind is Tls.UNKNOWN_CA else self._ca
        named = ("elsewhere.example",) if kind is Tls.WRONG_HOST else hosts
        until = datetime.now(timezone.utc) - timedelta(days=1) if kind is Tls.EXPIRED else None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(*named, not_after=until).configure_cert(context)
        if kind is Tls.OLD:
            with warnings.catch_warnings():
                # The ssl module advises against it; the test needs it.
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = ssl.TLSVersion.TLSv1_1
                context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.set_ciphers("ALL:@SECLEVEL=0")
        return context
