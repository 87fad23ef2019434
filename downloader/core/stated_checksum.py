"""Choose the checksum that a response states of the bytes that are stored (--checksums all).

A field is used only where it covers the stored bytes. A response has a *coding* if its Content-Encoding is
not identity. With --compressed a body with a coding is stored decoded; otherwise it is stored as it was
sent, also in a coding that nobody requested. Transfer codings (chunked) are always removed, and covered by
no field.

====================  ==================  ===============  ==============  ============  ==================
field                 no coding, 200      coding, as sent  coding, decoded 206           203
====================  ==================  ===============  ==============  ============  ==================
Content-Digest        yes                 yes: covers the  no: covers the  yes: covers   no: a proxy has
(RFC 9530 §2)                             coded content    coded content   the part      changed the body
Repr-Digest           yes                 yes: codings are no              no: covers    no
(RFC 9530 §3)                             part of it                       the whole
Digest                yes                 yes: as          no              no            no
(RFC 3230)                                Repr-Digest
Content-MD5           yes                 yes: includes    no              no: servers   no
(RFC 2616 §14.15)                         the coding                       differ
x-goog-hash           if the object has   if the object    no              no: covers    no
                      no coding (A)       has this one (A)                 the object
x-amz-checksum-*      yes                 yes: the object  no              no: covers    no
                                          has it (B)                       the object
====================  ==================  ===============  ==============  ============  ==================

(A) Google Cloud Storage states the hash of the object as it is stored. It may decode an object for a client
that does not accept its coding, or compress one. ``x-goog-stored-content-encoding`` has the coding of the
object: the hash is used only if that is the coding of the response, and, where the response has a coding,
only if the field is there.

(B) Only the origin sends it, and it does not recode. A cache in front of it compresses only for those who
request that; so where a coding was requested (``-H 'Accept-Encoding: …'``), it is not used.

A field that is malformed, a composite checksum of S3 (``…-N``: of the checksums of N parts), and an
algorithm that cannot be computed are ignored. Of all that remain the strongest is verified, one for each
response: a second one would find nothing more.

RFC 9530's fields are dictionaries of RFC 8941. The narrow part that they use, byte sequences, is parsed
here. http_sf parses all of it, but takes 14 µs for a field with two digests instead of 1 µs, and is beta.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from downloader.core.digests import ALGORITHMS, can_compute

__all__ = ["FIELDS", "Body", "Stated", "stated_checksum"]

_AMZ: Final = "x-amz-checksum-"
_AMZ_ALGORITHMS: Final = ("sha512", "sha256", "sha1", "md5", "crc32c", "crc32")
_STORED_CODING: Final = "x-goog-stored-content-encoding"
FIELDS: Final = (
    *("repr-digest", "content-digest", "digest", "content-md5", "x-goog-hash", _STORED_CODING),
    *(_AMZ + algorithm for algorithm in _AMZ_ALGORITHMS),
)
"""The header fields that are looked at, in lower case."""

# The strongest first.
_STRENGTH: Final = {
    name: place
    for place, name in enumerate(("sha512", "sha384", "sha256", "sha224", "sha1", "md5", "crc32c", "crc32"))
}
_ALGORITHM_OF_KEY: Final = {
    **{"sha-512": "sha512", "sha-256": "sha256", "sha": "sha1", "md5": "md5", "crc32c": "crc32c"},
}
# A member of a dictionary whose value is a byte sequence, with parameters (RFC 8941 §3.2, §3.3.5).
_MEMBER: Final = re.compile(
    r"[ \t]*([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):(?:[ ]*;[ ]*[a-z*][^,;\"]*)*[ \t]*(?:(,)|$)"
)
_INSTANCE_DIGEST: Final = re.compile(r"[ \t]*([A-Za-z0-9-]+)=([A-Za-z0-9+/=]+)[ \t]*").fullmatch


class Body(NamedTuple):
    """What decides which fields cover the stored bytes.

    ``coding``: the content coding of the response, "" without one; ``decoded``: it is removed before the
    bytes are stored; ``requested``: the request has asked for codings.
    """

    status: int = 200
    coding: str = ""
    decoded: bool = False
    requested: bool = False


class Stated(NamedTuple):
    """A checksum that the header field ``field`` of a response states of the stored bytes."""

    field: str
    algorithm: str
    digest: bytes


def stated_checksum(body: Body, lines: Callable[[str], Sequence[str]]) -> Stated | None:
    """Return the strongest checksum of the stored bytes, None if the response states none.

    ``lines`` returns the values of a header field, one for each line.
    """
    if body.status == 203 or (body.coding and body.decoded):
        return None
    best: Stated | None = None
    for stated in _all(body, lines):
        if (best is None or _STRENGTH[stated.algorithm] < _STRENGTH[best.algorithm]) and can_compute(
            stated.algorithm
        ):
            best = stated
    return best


def _all(body: Body, lines: Callable[[str], Sequence[str]]) -> Iterator[Stated]:
    yield from _dictionary("content-digest", lines("content-digest"))
    if body.status != 200:
        return
    yield from _dictionary("repr-digest", lines("repr-digest"))
    for key, text in _pairs(lines("digest")):
        if algorithm := _ALGORITHM_OF_KEY.get(key.lower()):
            yield from _stated("digest", algorithm, text)
    for line in lines("content-md5"):
        yield from _stated("content-md5", "md5", line)
    stored = "".join(lines(_STORED_CODING)).strip().lower() or ("?" if body.coding else "")
    if (stored if stored != "identity" else "") == body.coding:
        for key, text in _pairs(lines("x-goog-hash")):
            if key in ("md5", "crc32c"):
                yield from _stated("x-goog-hash", key, text)
    if not (body.coding and body.requested):
        for algorithm in _AMZ_ALGORITHMS:
            for line in lines(_AMZ + algorithm):
                yield from _stated(_AMZ + algorithm, algorithm, line)


def _dictionary(field: str, values: Sequence[str]) -> Iterator[Stated]:
    """Yield the digests in a dictionary of byte sequences; none if it is malformed."""
    text, at = ",".join(values), 0
    found: dict[str, str] = {}
    while at < len(text):
        match = _MEMBER.match(text, at)
        if match is None or (match[3] and match.end() == len(text)):
            return
        found[match[1]] = match[2]  # of two members of one key the last counts
        at = match.end()
    for key, value in found.items():
        if algorithm := _ALGORITHM_OF_KEY.get(key):
            yield from _stated(field, algorithm, value)


def _pairs(values: Sequence[str]) -> Iterator[tuple[str, str]]:
    for each in ",".join(values).split(","):
        if match := _INSTANCE_DIGEST(each):
            yield match[1], match[2]


def _stated(field: str, algorithm: str, text: str) -> Iterator[Stated]:
    """Yield the digest that ``text`` is in base64, nothing if it is none."""
    try:
        digest = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return
    if len(digest) * 2 == ALGORITHMS[algorithm]:
        yield Stated(field, algorithm, digest)
