"""Name the hosts of the open web: the first label of a name says what happens to queries and connections.

``live-000012.web.test`` is the twelfth name that works. The zone is under ``.test``, which is reserved and
delegated to nobody.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["ZONE", "Addresses", "Kind", "host", "kind_of", "own_addresses"]

ZONE: Final = "web.test"
_MOST: Final = 5_000
_LABEL: Final = re.compile(r"([a-z]+)-([0-9]+)")


class Kind(Enum):
    """What a name does. Those from ``REFUSE`` on resolve, or never do, and nothing is to be had there."""

    LIVE = "live"
    SERVFAIL = "servfail"  # the first queries fail, the following ones are answered as for LIVE
    REFUSE = "refuse"  # nothing listens at its address
    VOID = "void"  # connections to its address are never established, nor refused
    NX = "nx"  # NXDOMAIN
    SILENT = "silent"  # queries are never answered

    @property
    def serves(self) -> bool:
        """Whether there is a server at the address."""
        return self in (Kind.LIVE, Kind.SERVFAIL)


_KINDS: Final = {kind.value: kind for kind in Kind}


@dataclass(frozen=True)
class Addresses:
    """IPv4 addresses on loopback: of the DNS server, and of the names of each kind that resolve.

    Names that work have ``live`` or one of the following, ``count`` in all: some clients use a connection
    for every name at its address.
    """

    dns: str
    refuse: str
    void: str
    live: str
    count: int = 1

    def of(self, kind: Kind, number: int = 0) -> str | None:
        """Return the address of name ``number`` of ``kind``, None where there is none."""
        if kind.serves:
            return str(ipaddress.IPv4Address(self.live) + number % self.count)
        return {Kind.REFUSE: self.refuse, Kind.VOID: self.void}.get(kind)

    def all_live(self) -> list[str]:
        """Return the addresses of the names that work."""
        first = ipaddress.IPv4Address(self.live)
        return [str(first + offset) for offset in range(self.count)]


def own_addresses(hosts: int = 1, number: int | None = None) -> Addresses:
    """Return addresses that hardly another process uses that calls this: they are made from ``number``,
    which is the process's own by default; for each of ``hosts`` hosts there is one, up to 5,000."""
    number = os.getpid() if number is None else number
    # System resolvers listen at the beginning of 127/8. Eight for each number, and in its upper half 8,192.
    first = ipaddress.IPv4Address("127.64.0.0") + number % (1 << 18) * 8
    live = ipaddress.IPv4Address("127.128.0.0") + number % (1 << 10) * 8192
    return Addresses(
        dns=str(first + 1),
        refuse=str(first + 2),
        void=str(first + 3),
        live=str(live + 1),
        count=min(hosts, _MOST),
    )


def host(kind: Kind, number: int) -> str:
    """Return the full name of a host."""
    return f"{kind.value}-{number:06d}.{ZONE}"


def kind_of(label: str) -> tuple[Kind, int] | None:
    """Return the kind and the number that the first label of a name gives, None for any other label."""
    found = _LABEL.fullmatch(label)
    kind = _KINDS.get(found[1]) if found else None
    return (kind, int(found[2])) if found and kind else None
