"""Read the files that a Config names, once: certificates, a key, logins.

A run continues when they are removed or changed in the meantime: the replacement of a dead worker is forked
with the same content. The list of URLs is not among them; it may be huge, and only the feeder reads it.
"""

from __future__ import annotations

import netrc
import re
from pathlib import Path

import msgspec

from downloader.core.host_names import ascii_host
from downloader.errors import ConfigError

__all__ = ["NamedFiles", "is_encrypted", "read_netrc", "read_pem"]

_ENCRYPTED = re.compile(rb"^(-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type:\s*4,\s*ENCRYPTED)", re.M)


class NamedFiles(msgspec.Struct, frozen=True):
    """The content of the files at ``paths``; ``logins`` maps each host of a netrc to user and password."""

    paths: tuple[str, ...]
    cacert: bytes = b""
    cert: bytes = b""
    key: bytes = b""
    logins: dict[str, tuple[str, str]] = {}

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
        content = Path(path).read_bytes()
    except OSError as error:
        # No colon after --key, or after a path that ends in "-key": the text after it would be redacted.
        raise ConfigError(f"{option} {path} cannot be read ({error.strerror})") from None
    if b"-----BEGIN " not in content:
        raise ConfigError(f"{option} {path} is not in PEM format (-----BEGIN …)")
    return content


def is_encrypted(pem: bytes) -> bool:
    """Return whether the private key in ``pem`` needs a password.

    The text decides, in both forms that OpenSSL writes: the supervisor must not import ssl.
    """
    return _ENCRYPTED.search(pem) is not None


def read_netrc(path: str) -> dict[str, tuple[str, str]]:
    """Return user and password by host; ``default`` applies to all others. Raises ConfigError."""
    try:
        hosts = netrc.netrc(path).hosts
    except netrc.NetrcParseError as error:
        # The text of the error contains the unexpected word, which may be the password.
        raise ConfigError(f"--netrc: {path}, line {error.lineno}: not in the format of netrc") from None
    except (OSError, ValueError):
        raise ConfigError(f"--netrc: {path} cannot be read") from None
    return {
        _machine(host): (user or account or "", word or "") for host, (user, account, word) in hosts.items()
    }


def _machine(host: str) -> str:
    """Return the host of a netrc as ``Origin.host`` has it: names have no case, and are in ASCII."""
    try:
        return ascii_host(host).rstrip(".")
    except ValueError:  # an IPv6 address, which has no brackets here
        return host.lower()
