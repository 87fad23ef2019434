"""Decide which hosts are reached without a proxy: the value of NO_PROXY.

There is no standard. This reads what curl, Go and requests do: entries between commas or blanks, each a
domain, with all below it and with or without a leading dot or ``*.``; an address in any spelling; a
network as ``10.0.0.0/8``; ``*`` for all. An entry with a port is for that port only.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from downloader.core.host_names import ascii_host

__all__ = ["NoProxy", "parse_no_proxy"]

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# An IPv6 address without brackets can have no port: it would be ambiguous.
_WITH_PORT: Final = re.compile(r"(\[.*\]|[^:\[\]]*):([0-9]{1,5})").fullmatch


class NoProxy(NamedTuple):
    """Entries of NO_PROXY, each with a port, 0 for any; ``names`` are domains in ASCII."""

    everything: bool
    names: frozenset[tuple[str, int]]
    networks: tuple[tuple[_Network, int], ...]

    def covers(self, host: str, port: int) -> bool:
        """Return whether ``host``, a name in ASCII or an address without brackets, needs no proxy."""
        if self.everything:
            return True
        address = _address(host)
        if address is not None:
            return any(address in network and only in (0, port) for network, only in self.networks)
        labels = host.lower().rstrip(".").split(".")
        domains = [".".join(labels[at:]) for at in range(len(labels))]
        return any((domain, only) in self.names for domain in domains for only in (0, port))


def parse_no_proxy(text: str) -> NoProxy:
    """Return the entries of ``text``; what is no host and no network covers nothing."""
    names: set[tuple[str, int]] = set()
    networks: list[tuple[_Network, int]] = []
    entries = re.split(r"[,\s]+", text)
    for entry in entries:
        place, port = entry, 0
        if match := _WITH_PORT(entry):
            place, port = match[1], int(match[2])
        network = _network(place)
        if network is not None:
            networks.append((network, port))
        elif name := _name(place):
            names.add((name, port))
    return NoProxy("*" in entries, frozenset(names), tuple(networks))


def _address(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # A mapped address leads to the IPv4 one.
    return getattr(found, "ipv4_mapped", None) or found


def _network(text: str) -> _Network | None:
    address, slash, length = text.replace("[", "").replace("]", "").partition("/")
    try:
        if slash:
            return ipaddress.ip_network(f"{address.partition('%')[0]}/{length}", strict=False)
    except ValueError:
        return None
    found = _address(address)
    return ipaddress.ip_network(found) if found is not None else None


def _name(text: str) -> str:
    try:
        return ascii_host(text.removeprefix("*").strip(".")) if text.strip("*.") else ""
    except ValueError:
        return ""
