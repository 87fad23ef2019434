"""Make a TLS context whose settings do not depend on who built Python and OpenSSL.

A distribution changes them when it builds Python (Debian's 3.11 takes OpenSSL's ciphers and sets
``OP_IGNORE_UNEXPECTED_EOF``, Python's own build does neither), the administrator in ``openssl.cnf``, a user
with OPENSSL_CONF. Every context of ours is made here; a test finds any other.

Not imported with this module: ``ssl``, since the supervisor imports modules that import this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from downloader.errors import BootError

if TYPE_CHECKING:
    from ssl import SSLContext

    C = TypeVar("C", bound=SSLContext)

__all__ = ["CIPHERS", "client_context", "secured", "server_context"]

CIPHERS = "DEFAULT:@SECLEVEL=2"
"""What OpenSSL offers by default, and so do curl and Debian's Python; keys of 2048 bits (RSA) or more.

The list of Python's own build has no ciphers without forward secrecy and none with SHA-1: old servers that
have no others would be reached from some machines only.
"""

# The name is there from Python 3.10 on, where OpenSSL has it.
_IGNORE_UNEXPECTED_EOF = 0x80


def client_context() -> SSLContext:
    """Return a context for a client, which trusts nobody yet."""
    import ssl

    return secured(ssl.SSLContext, ssl.PROTOCOL_TLS_CLIENT)


def server_context() -> SSLContext:
    """Return a context for a server, which has no certificate yet."""
    import ssl

    return secured(ssl.SSLContext, ssl.PROTOCOL_TLS_SERVER)


def secured(kind: type[C], protocol: int) -> C:
    """Return a new context of class ``kind``: TLS 1.2 or newer, and a cut connection is an error.

    With the option that is cleared here, OpenSSL reports a connection that was cut as one that was closed:
    a body without a length would be complete wherever it is cut (RFC 9112 §9.8). Raises BootError if
    OpenSSL cannot be used as it is configured.
    """
    import ssl

    try:
        context = kind(protocol)
        # Also as "Protocol = -TLSv1.2" of openssl.cnf sets them.
        context.options &= ~(_IGNORE_UNEXPECTED_EOF | ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3)
        context.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
    except (ssl.SSLError, ValueError) as error:
        raise BootError(
            f"OpenSSL refuses to make a TLS context ({error}); see its configuration, openssl.cnf or the "
            "file in OPENSSL_CONF"
        ) from None
    return context
