"""What every request to a bucket needs besides the credentials, as one value."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

from downloader.core.no_proxy import parse_no_proxy

__all__ = ["NO_OPTIONS", "BucketAccess"]

# Where a machine at AWS asks for its credentials. They are on the link only: no proxy leads there.
_OF_THE_MACHINE: Final = (
    "169.254.169.254/32",
    "169.254.170.2/32",
    "169.254.170.23/32",
    "fd00:ec2::254/128",
    "fd00:ec2::23/128",
)


class BucketAccess(msgspec.Struct, frozen=True):
    """How a bucket is reached.

    ``endpoint_url``, ``region``: those of the environment where "". ``proxies``, ``no_proxy``: as in
    ``Config``. ``authorities``: the certificates of --cacert as PEM, b"" for those of certifi.
    ``insecure``: no certificate is verified.
    """

    endpoint_url: str = ""
    region: str = ""
    proxies: dict[str, str] = {}
    no_proxy: str = ""
    authorities: bytes = b""
    insecure: bool = False

    def __repr__(self) -> str:
        """Return a representation without the login of a proxy."""
        return f"BucketAccess({self.endpoint_url!r}, {self.region!r}, …)"

    def proxy(self, endpoint: str) -> str:
        """Return the URL of the proxy for the store at ``endpoint``, "" for AWS; "" if there is none."""
        scheme = urlsplit(endpoint).scheme.lower() or "https"
        return self.proxies.get(scheme) or self.proxies.get("all") or ""

    def proxy_excludes(self, endpoint: str) -> str:
        """Return the hosts that need no proxy, in the form that obstore takes.

        It knows no ports: an entry with one counts if that is the port of ``endpoint``.
        """
        found = parse_no_proxy(self.no_proxy)
        if found.everything:
            return "*,0.0.0.0/0,::/0"  # the asterisk stands for names only
        parts = urlsplit(endpoint)
        ports = 0, parts.port or (80 if parts.scheme.lower() == "http" else 443)
        names = sorted(name for name, port in found.names if port in ports)
        networks = [str(network) for network, port in found.networks if port in ports]
        return ",".join([*names, *networks, *_OF_THE_MACHINE])


NO_OPTIONS: Final = BucketAccess()
"""How a bucket is reached without any option."""
