"""Answer queries for the names of the open web: bytes in, bytes out, no socket.

dnspython encodes an answer in 0.4 ms, ten times what it may take here. So it encodes one for each
outcome and length of a name; later answers of that kind differ only in the ID and the question, which are
copied from the query, and in the address.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rrset

from benchmarks.openweb.names import ZONE, Addresses, Kind, kind_of

__all__ = ["Zone"]

_HEADER: Final = 12
_NONE: Final = "0.0.0.0"
_TTL: Final = 60
_OPCODE_AND_QR: Final = 0xF8
_RECURSION_DESIRED: Final = 0x01
_A: Final = struct.pack("!HH", 1, 1)  # type and class, as they stand in a question
_SUFFIX: Final = dns.name.from_text(ZONE).to_wire() or b""


class _Outcome(Enum):
    """What is answered; the addresses come with the kind."""

    ADDRESS = "address"
    EMPTY = "empty"
    NXDOMAIN = "nxdomain"
    SERVFAIL = "servfail"
    REFUSED = "refused"


_RCODES: Final = {
    _Outcome.ADDRESS: dns.rcode.NOERROR,
    _Outcome.EMPTY: dns.rcode.NOERROR,
    _Outcome.NXDOMAIN: dns.rcode.NXDOMAIN,
    _Outcome.SERVFAIL: dns.rcode.SERVFAIL,
    _Outcome.REFUSED: dns.rcode.REFUSED,
}


@dataclass(slots=True)
class _Name:
    """A name that was asked for: its kind (None: not of this zone), its address, the number of its
    SERVFAILs, and the queries so far, by type and class."""

    kind: Kind | None
    address: bytes = b""
    servfails: int = 0
    queries: Counter[bytes] = field(default_factory=Counter)


class Zone:
    """The zone ``web.test``. A name ``servfail-N`` fails the first queries of each type: as many as its N
    chooses from ``servfails``, a minimum and a maximum."""

    def __init__(self, addresses: Addresses, servfails: tuple[int, int] = (1, 2)) -> None:
        self._addresses = addresses
        self._servfails = servfails
        self._names: dict[bytes, _Name] = {}
        self._encoded: dict[tuple[_Outcome, int], tuple[bytes, bytes]] = {}
        self._malformed = 0

    def answer(self, query: bytes) -> bytes | None:
        """Return the response to ``query`` without the delay; None where there is to be none."""
        end = query.find(0, _HEADER) + 1  # the root label; the types and the class follow
        if not end or len(query) < end + 4 or query[2] & _OPCODE_AND_QR or query[4:6] != b"\0\1":
            self._malformed += 1
            return None
        wire = query[_HEADER:end].lower()
        name = self._names.get(wire)
        if name is None:
            name = self._names[wire] = self._found(wire)
        asked = query[end : end + 4]
        name.queries[asked] += 1
        if name.kind is Kind.SILENT:
            return None
        question = query[_HEADER : end + 4]
        outcome = _outcome(name, asked)
        key = (outcome, len(question))
        if key not in self._encoded:
            try:
                self._encoded[key] = _encode(outcome, question)
            except dns.exception.DNSException:  # labels that are not those of a name
                self._malformed += 1
                return None
        flags_and_counts, tail = self._encoded[key]
        desired = query[2] & _RECURSION_DESIRED
        flags = bytes((flags_and_counts[0] | desired,))
        address = name.address if outcome is _Outcome.ADDRESS else b""
        return b"".join((query[:2], flags, flags_and_counts[1:], question, tail, address))

    def counts(self) -> dict[str, object]:
        """Return how many queries there were: in all, most for a name, most for a name and one type, and
        for each kind of name."""
        by_kind: Counter[str] = Counter()
        for name in self._names.values():
            by_kind[name.kind.value if name.kind else "foreign"] += name.queries.total()
        most = max(self._names, key=lambda wire: self._names[wire].queries.total(), default=b"\0")
        names = self._names.values()
        return {
            "queries": sum(by_kind.values()),
            "names": len(names),
            "most_per_name": max((name.queries.total() for name in names), default=0),
            "most_per_type": max((max(name.queries.values()) for name in names), default=0),
            "most_asked": dns.name.from_wire(most, 0)[0].to_text(omit_final_dot=True),
            "malformed": self._malformed,
            "by_kind": dict(sorted(by_kind.items())),
        }

    def _found(self, wire: bytes) -> _Name:
        label = wire[1 : 1 + wire[0]].decode("ascii", "replace")
        ours = kind_of(label) if wire[1 + wire[0] :] == _SUFFIX else None
        if ours is None:
            return _Name(Kind.NX if wire.endswith(_SUFFIX) else None)
        kind, number = ours
        least, most = self._servfails
        servfails = least + number % (most - least + 1) if kind is Kind.SERVFAIL else 0
        return _Name(kind, socket.inet_aton(self._addresses.of(kind, number) or _NONE), servfails)


def _encode(outcome: _Outcome, question: bytes) -> tuple[bytes, bytes]:
    """Return flags and counts, and what follows the question, up to the address where there is one.

    Pointers to the question stay right: equally long names have the zone at the same place."""
    query = dns.message.from_wire(struct.pack("!6H", 0, 0, 1, 0, 0, 0) + question)
    response = dns.message.make_response(query, recursion_available=True)
    response.flags |= dns.flags.AA
    if outcome is _Outcome.ADDRESS:
        response.answer.append(dns.rrset.from_text(query.question[0].name, _TTL, "IN", "A", _NONE))
    elif outcome in (_Outcome.EMPTY, _Outcome.NXDOMAIN):
        start = f"ns.{ZONE}. nobody.{ZONE}. 1 3600 600 86400 {_TTL}"
        response.authority.append(dns.rrset.from_text(f"{ZONE}.", _TTL, "IN", "SOA", start))
    response.set_rcode(_RCODES[outcome])
    wire = response.to_wire()
    end = len(wire) - (len(socket.inet_aton(_NONE)) if outcome is _Outcome.ADDRESS else 0)
    return wire[2:_HEADER], wire[_HEADER + len(question) : end]


def _outcome(name: _Name, asked: bytes) -> _Outcome:
    if name.kind is None:
        return _Outcome.REFUSED
    if name.kind is Kind.NX:
        return _Outcome.NXDOMAIN
    if name.queries[asked] <= name.servfails:
        return _Outcome.SERVFAIL
    return _Outcome.ADDRESS if asked == _A else _Outcome.EMPTY
