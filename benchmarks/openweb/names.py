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
    """IPv4 addresses on loopback: of the DNS server, and of the names of each kind that resolve."""

    dns: str
    live: str
    refuse: str
    void: str

    def of(self, kind: Kind) -> str | None:
        """Return the address of names of ``kind``, None where they have none."""
        if kind.serves:
            return self.live
        return {Kind.REFUSE: self.refuse, Kind.VOID: self.void}.get(kind)


def own_addresses(number: int | None = None) -> Addresses:
    """Return addresses that no other process uses that calls this: they are made from ``number``, which is
    the process's own by default."""
    number = os.getpid() if number is None else number
    # From 127.64.0.0 on, eight for each number; system resolvers listen at the beginning of 127/8.
    first = ipaddress.IPv4Address("127.64.0.0") + number % (1 << 18) * 8
    return Addresses(*(str(first + offset) for offset in range(1, 5)))


def host(kind: Kind, number: int) -> str:
    """Return the full name of a host."""
    return f"{kind.value}-{number:06d}.{ZONE}"


def kind_of(label: str) -> tuple[Kind, int] | None:
    """Return the kind and the number that the first label of a name gives, None for any other label."""
    found = _LABEL.fullmatch(label)
    kind = _KINDS.get(found[1]) if found else None
    return (kind, int(found[2])) if found and kind else None
