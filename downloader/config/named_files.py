"""Read the files that a Config names, once: certificates, a key, logins.

A run continues when they are removed or changed in the meantime: the replacement of a dead worker is forked
with the same content. The list of URLs is not among them; it may be huge, and only the feeder reads it.
"""

from __future__ import annotations

import re

import msgspec

from downloader.config.small_files import read_small
from downloader.config.system_authorities import SYSTEM, read_system_authorities
from downloader.core.netrc import Login, parse_netrc
from downloader.errors import ConfigError

__all__ = ["NamedFiles", "is_encrypted", "read_authorities", "read_netrc", "read_pem"]

_ENCRYPTED = re.compile(rb"^(-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type:\s*4,\s*ENCRYPTED)", re.M)


class NamedFiles(msgspec.Struct, frozen=True):
    """The content of the files at ``paths``; ``logins`` are those of a netrc, by host."""

    paths: tuple[str, ...]
    cacert: bytes = b""
    cert: bytes = b""
    key: bytes = b""
    logins: dict[str, tuple[Login, ...]] = {}

    def __repr__(self) -> str:
        """Return a representation without secrets."""
        return f"NamedFiles(paths={self.paths!r}, …)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("paths", self.paths)]


def read_pem(option: str, path: str) -> bytes:
    """Return the content of ``path``, which ``option`` names.

    Raises ConfigError where it cannot be read or is not in PEM format.
    """
    try:
        content = read_small(path)
    except OSError as error:
        # No colon after --key, or after a path that ends in "-key": the text after it would be redacted.
        raise ConfigError(f"{option} {path} cannot be read ({error.strerror})") from None
    if b"-----BEGIN " not in content:
        raise ConfigError(f"{option} {path} is not in PEM format (-----BEGIN …)")
    return content


def read_authorities(cacert: str) -> bytes:
    """Return the certificates that ``cacert``, the value of --cacert, names, as PEM. Raises ConfigError."""
    if cacert == SYSTEM:
        return read_system_authorities()
    return read_pem("--cacert", cacert) if cacert else b""


def is_encrypted(pem: bytes) -> bool:
    """Return whether the private key in ``pem`` needs a password.

    The text decides, in both forms that OpenSSL writes: the supervisor must not import ssl.
    """
    return _ENCRYPTED.search(pem) is not None


def read_netrc(path: str) -> dict[str, tuple[Login, ...]]:
    """Return the logins of a netrc by host, for ``core.netrc.login_for``. Raises ConfigError."""
    try:
        # Bytes that are not UTF-8 are sent as they are.
        return parse_netrc(read_small(path).decode("utf-8", "surrogateescape"))
    except OSError as error:
        raise ConfigError(f"--netrc: {path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError(f"--netrc: {path}, line {error}: not in the format of netrc") from None
