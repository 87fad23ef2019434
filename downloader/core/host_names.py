"""Convert a host as people write it to the name that DNS, TLS and the Host field have: UTS 46, as
browsers.

The package idna implements IDNA2008, which refuses emoji, and its mapping is that of UTS 46. So its
mapping and its tests of a label are used, and the codepoints of a label are those that UTS 46 allows:
https://www.unicode.org/reports/tr46/#Processing, non-transitional (ß stays), with CheckBidi and
CheckJoiners and without CheckHyphens and UseSTD3ASCIIRules, as in the URL standard. A joiner where none
may be is left out, as libidn2, and so curl, does.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import unquote_to_bytes

__all__ = ["ascii_host"]

_ASCII: Final = re.compile(r"[a-z0-9._~!$&'()*+,;=-]+").fullmatch  # reg-name of RFC 3986, nothing encoded
_JOINERS: Final = re.compile("[\u200c\u200d]")


def ascii_host(host: str) -> str:
    """Return ``host``, a name or an IPv6 address in brackets, in ASCII and lower case.

    Raises ValueError, with a clause.
    """
    lower = host.lower() if host.isascii() else host
    if _ASCII(lower):
        return lower
    if host[:1] == "[":
        return _ipv6(host)
    if "%" in host:
        host = unquote_to_bytes(host.encode("utf-8")).decode("utf-8")
    if not host.isascii():
        host = _mapped(host)
    host = host.lower()
    if not _ASCII(host):
        raise ValueError("the host has a character that no name has")
    return host


def _ipv6(host: str) -> str:
    inner, bracket, rest = host[1:].partition("]")
    if not bracket or rest:
        raise ValueError("not an IPv6 address in brackets")
    address, percent, _ = inner.partition("%")
    IPv6Address(address)
    if percent:
        # It means something on one machine only, and urllib3 and servers disagree about how to write it.
        raise ValueError("an IPv6 address with a zone (%) cannot be fetched, as in browsers")
    return f"[{address.lower()}]"


def _mapped(host: str) -> str:
    import idna  # it takes milliseconds to import, and few jobs have such names

    try:
        # It also converts 。 and the full-width full stops.
        return ".".join(
            map(_label, idna.uts46_remap(host, std3_rules=False, transitional=False).split("."))
        )
    except UnicodeError as error:
        raise ValueError(f"the host is not a name: {error}") from None


def _label(label: str) -> str:
    if label.isascii():
        return label
    import idna

    idna.check_initial_combiner(label)
    idna.check_bidi(label)
    if not all(idna.valid_contextj(label, hit.start()) for hit in _JOINERS.finditer(label)):
        label = _JOINERS.sub("", label)
    return label if label.isascii() else f"xn--{label.encode('punycode').decode('ascii')}"
