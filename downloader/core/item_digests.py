"""Tell items of one name apart, by digests of the URL of each and of the checksum that it is to have.

A list that is read again may have other rows under the names of the first pass. So for each batch of items
that have URLs the journal keeps two arrays of u32 in the order of the items: the CRC-32 of each URL, then
that of each checksum (0: the row states none). The second is left out where all are 0.
In a journal of an earlier version only the last characters of a checksum count (``may_be_of``).

A URL counts without its secrets, and one that has a signature also without what changes when it is signed
anew: neither says which file it is, and the digest of a secret is not to be kept.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from downloader.core.checksum import crc32
from downloader.core.redact import is_secret_param, redact_url
from downloader.messages import Item

__all__ = ["Digest", "decode_digests", "item_digests", "may_be_of"]

_BYTES: Final = 4  # of a CRC-32
_FORMER: Final = 60  # characters of a checksum that counted in earlier versions, the last ones
_NAMES: Final = re.compile(r"[?&;]([^=&;\n]*)=").findall
# What may hide a secret from those who look at the names of parameters: a login, and what is encoded twice.
_HIDING: Final = ("@", "%40", "%3D", "%3d", "%25")
# What is beside the signature in URLs that are signed: by Amazon, by Google, by CloudFront, by Azure.
_SIGNING: Final = re.compile(
    r"x-[a-z]+-(?:algorithm|date|expires|signedheaders)|expires|exp|policy|key-pair-id"
    r"|s[eprtv]|spr|sip|sk[estv]|skoid|sktid",
    re.IGNORECASE,
).fullmatch


class Digest(NamedTuple):
    """What tells an item from others of its name: digests of its URL and of its checksum, 0 for none."""

    url: int
    checksum: int


def item_digests(items: Sequence[Item]) -> bytes:
    """Return the digests of ``items``, packed. That takes some 0.2 µs for a URL without parameters."""
    urls = _stable([item.url for item in items])
    sums = [item.checksum for item in items]
    packed = array("I", [crc32(url.encode("utf-8", "surrogatepass")) for url in urls]).tobytes()
    if any(sums):
        packed += array("I", map(_digest, sums)).tobytes()
    return packed


def may_be_of(digest: int, checksum: str) -> bool:
    """Return whether ``digest``, which may be of an earlier version, can be that of ``checksum``."""
    return digest in (_digest(checksum), _digest(checksum[-_FORMER:]))


def _digest(checksum: str) -> int:
    return crc32(checksum.encode("utf-8", "surrogatepass"))


def decode_digests(packed: bytes, count: int) -> list[Digest]:
    """Return the digests of ``count`` items. Raises ValueError if ``packed`` is not that."""
    if len(packed) not in (_BYTES * count, 2 * _BYTES * count):
        raise ValueError(f"digests of {count} items in {len(packed)} bytes")
    numbers = array("I", packed)
    return list(map(Digest, numbers[:count], numbers[count:] or [0] * count))


def _stable(urls: list[str]) -> list[str]:
    """Return ``urls`` without secrets, and those that had some also without what signing changes."""
    text = "\n".join(urls)
    if "=" not in text and "@" not in text:
        return urls
    hides = _hides(text)
    names = set(_NAMES(text))  # few: the URLs of a list share them
    secret = frozenset(filter(is_secret_param, names))
    if not (secret or hides):
        return urls
    left_out = secret.union(filter(_SIGNING, names))
    return [_without(url, secret, left_out, hides) for url in urls]


def _hides(text: str) -> bool:
    """Return whether there may be a secret in ``text`` that has no parameter of its own."""
    return any([mark in text for mark in _HIDING])


def _without(url: str, secret: frozenset[str], left_out: frozenset[str], hides: bool) -> str:
    """Return ``url`` without the parameters ``left_out``, if it has one that is ``secret``."""
    path, mark, query = url.partition("?")
    parameters = query.split("&")
    names = [each.partition("=")[0] for each in parameters]
    if "=" in path or (hides and _hides(url)):
        shown = redact_url(url)
        if shown == url:
            return url
        path, mark, query = shown.partition("?")
        parameters = query.split("&")
        names = [each.partition("=")[0] for each in parameters]
    elif secret.isdisjoint(names):
        return url
    kept = [each for each, name in zip(parameters, names, strict=True) if name not in left_out]
    return f"{path}{mark}{'&'.join(kept)}"
