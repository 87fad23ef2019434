"""Parse the address of a name server."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

__all__ = ["split_address"]

_DNS = 53


def split_address(text: str) -> tuple[str, int]:
    """Return address and port of ``192.0.2.1``, ``192.0.2.1:5353``, ``2001:db8::1``, ``[2001:db8::1]:53``.

    Raises ValueError, with a sentence, for anything else; a name is no address.
    """
    try:
        return str(ipaddress.ip_address(text)), _DNS
    except ValueError:
        pass
    try:
        parts = urlsplit(f"//{text}")
        address, port = str(ipaddress.ip_address(parts.hostname or "")), parts.port
        if parts.netloc == text and not parts.username and port != 0:
            return address, port or _DNS
    except ValueError:
        pass
    raise ValueError(f"{text[:60]!r} is not an IP address, or ADDRESS:PORT")
