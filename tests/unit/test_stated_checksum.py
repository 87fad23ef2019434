"""What a response states of its bytes: which fields cover those that are stored, and how they are read."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core import stated_checksum as module
from downloader.core.stated_checksum import FIELDS, Body, Stated, stated_checksum

BODY = b"hello"


def of(algorithm: str) -> str:
    return base64.b64encode(hashlib.new(algorithm, BODY).digest()).decode()


SHA256, SHA512, SHA1, MD5 = map(of, ("sha256", "sha512", "sha1", "md5"))
CRC32C = base64.b64encode(bytes.fromhex("9a71bb4c")).decode()


def stated(body: Body, **fields: str | Sequence[str]) -> Stated | None:
    lines = {
        name.replace("_", "-"): [value] if isinstance(value, str) else list(value)
        for name, value in fields.items()
    }
    return stated_checksum(body, lambda name: lines.get(name, []))


def algorithm(body: Body, **fields: str | Sequence[str]) -> str:
    found = stated(body, **fields)
    if found is None:
        return ""
    if found.algorithm != "crc32c":
        assert found.digest == hashlib.new(found.algorithm, BODY).digest()
    return found.algorithm


PLAIN = Body()
SENT, DECODED = Body(coding="gzip"), Body(coding="gzip", decoded=True, requested=True)
KEPT = Body(coding="gzip", requested=True)  # -H 'Accept-Encoding: gzip', without --compressed
PART, CHANGED = Body(status=206), Body(status=203)
EVERY = (PLAIN, SENT, DECODED, KEPT, PART, CHANGED)


@pytest.mark.parametrize(
    ("fields", "covered"),
    [
        ({"content_digest": f"sha-256=:{SHA256}:"}, (PLAIN, SENT, KEPT, PART)),
        ({"repr_digest": f"sha-256=:{SHA256}:"}, (PLAIN, SENT, KEPT)),
        ({"digest": f"SHA-256={SHA256}"}, (PLAIN, SENT, KEPT)),
        ({"content_md5": MD5}, (PLAIN, SENT, KEPT)),
        ({"x_goog_hash": f"md5={MD5}"}, (PLAIN,)),
        ({"x_goog_hash": f"md5={MD5}", "x_goog_stored_content_encoding": "identity"}, (PLAIN,)),
        ({"x_goog_hash": f"md5={MD5}", "x_goog_stored_content_encoding": "gzip"}, (SENT, KEPT)),
        ({"x_amz_checksum_sha256": SHA256}, (PLAIN, SENT)),
    ],
)
def test_a_field_is_used_where_it_covers_the_stored_bytes(
    fields: dict[str, str], covered: tuple[Body, ...]
) -> None:
    assert tuple(body for body in EVERY if algorithm(body, **fields)) == covered


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"repr_digest": f"sha-256=:{SHA256}:, sha-512=:{SHA512}:"}, "sha512"),
        ({"repr_digest": f"md5=:{MD5}:,sha-256=:{SHA256}:;q=1 , unixsum=:MTIz:"}, "sha256"),
        ({"repr_digest": [f"md5=:{MD5}:", f"sha=:{SHA1}:"]}, "sha1"),
        ({"repr_digest": f"sha-256=:{MD5}:, sha-256=:{SHA256}:"}, "sha256"),  # the last one counts
        ({"repr_digest": f"md5=:{MD5}:", "content_digest": f"sha-512=:{SHA512}:"}, "sha512"),
        ({"digest": f"md5={MD5},SHA={SHA1}"}, "sha1"),
        ({"x_goog_hash": [f"crc32c={CRC32C}", f"md5={MD5}"]}, "md5"),
        ({"x_goog_hash": f"crc32c={CRC32C},md5={MD5}"}, "md5"),
        ({"x_goog_hash": f"crc32c={CRC32C}"}, "crc32c"),
        ({"x_amz_checksum_sha1": SHA1, "x_amz_checksum_crc32c": CRC32C}, "sha1"),
        # Of another kind, or malformed: as if it were not there.
        ({"repr_digest": f"sha-256=:{SHA256}:,"}, ""),
        ({"repr_digest": f"sha-256={SHA256}"}, ""),
        ({"repr_digest": f"sha-256=:{SHA256}"}, ""),
        ({"repr_digest": f"SHA-256=:{SHA256}:"}, ""),
        ({"repr_digest": f"sha-256=:{MD5}:"}, ""),
        ({"repr_digest": f"sha3-256=:{SHA256}:"}, ""),
        ({"content_md5": hashlib.md5(BODY).hexdigest()}, ""),
        ({"content_md5": "?"}, ""),
        ({"x_amz_checksum_sha256": f"{SHA256}-3"}, ""),
        ({"x_amz_checksum_crc64nvme": SHA256[:12]}, ""),
        ({"x_goog_hash": f"sha256={SHA256}"}, ""),
    ],
)
def test_the_strongest_algorithm_that_is_known(fields: dict[str, str], expected: str) -> None:
    assert algorithm(PLAIN, **fields) == expected


def test_an_algorithm_whose_package_is_missing_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "can_compute", lambda name: name != "crc32c")
    assert stated(PLAIN, x_goog_hash=f"crc32c={CRC32C}") is None
    assert algorithm(PLAIN, x_goog_hash=f"crc32c={CRC32C},md5={MD5}") == "md5"


@given(st.dictionaries(st.sampled_from(FIELDS), st.lists(st.text(max_size=60), max_size=3)))
def test_no_field_raises(fields: dict[str, list[str]]) -> None:
    stated_checksum(PLAIN, lambda name: fields.get(name, []))
