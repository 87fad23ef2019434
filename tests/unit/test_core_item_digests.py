"""Which items of one name are told apart, when a source is read again."""

from __future__ import annotations

import pytest

from downloader.core.checksum import crc32
from downloader.core.item_digests import decode_digests, item_digests, may_be_of
from downloader.messages import Item

S3 = "http://h/x?versionId=7&X-Amz-Date={0}&X-Amz-Expires=6{0}&X-Amz-SignedHeaders=host&X-Amz-Signature=ab{0}"
AZURE = "http://h/x?sv=2{0}&st=2{0}&se=3{0}&sr=b&sp=r&sig=ab{0}"
CLOUDFRONT = "http://h/x?size=1&Expires=17{0}&Key-Pair-Id=K{0}&Signature=ab{0}"


def are_one(*urls: str) -> bool:
    items = [Item("x", url) for url in urls]
    together = {digest.url for digest in decode_digests(item_digests(items), len(items))}
    alone = {decode_digests(item_digests([item]), 1)[0].url for item in items}
    assert together == alone, "which others are read with them makes no difference"
    return len(together) == 1


@pytest.mark.parametrize(
    "url", [S3, AZURE, CLOUDFRONT, "http://me:pw{0}@h/x?a=1", "http://h/x;jsessionid=a{0}"]
)
def test_what_is_signed_anew_is_one(url: str) -> None:
    assert are_one(url.format(1), url.format(2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h/x", "http://h/X"),
        ("http://h/x", "https://h/x"),
        ("http://h/x?id=1", "http://h/x?id=2"),
        ("http://h/x?se=1", "http://h/x?se=2"),  # not signed
        (S3.format(1), S3.format(1).replace("versionId=7", "versionId=8")),
        ("http://h/x?token=a&id=1", "http://h/x?token=a&id=2"),
        ("http://h/x?token=a#1", "http://h/y?token=a#1"),
        ("http://me@h/x", "http://me@g/x"),
        ("http://h/\udc80", "http://h/\udc81"),
        ("http://h/" + "a" * 100 + "1", "http://h/" + "a" * 100 + "2"),
    ],
)
def test_other_urls_are_others(one: str, other: str) -> None:
    assert not are_one(one, other)
    assert are_one(one, one)


@pytest.mark.parametrize(
    ("algorithm", "digits"), [("md5", 32), ("sha256", 64), ("sha384", 96), ("sha512", 128)]
)
def test_every_digit_of_a_checksum_counts(algorithm: str, digits: int) -> None:
    """In what this version keeps; in what earlier ones have kept, the last ones."""
    text = f"{algorithm}:{'0' * digits}"
    (digest,) = decode_digests(item_digests([Item("a", "http://h/a", checksum=text)]), 1)
    assert may_be_of(digest.checksum, text)
    for place in range(len(algorithm) + 1, len(text)):
        assert not may_be_of(digest.checksum, f"{text[:place]}1{text[place + 1 :]}")
    assert may_be_of(crc32(text[-60:].encode()), text)


def test_checksums_are_kept_where_there_are_some() -> None:
    items = [Item("a", "http://h/a", checksum="sha256:" + "0" * 64), Item("b", "http://h/b")]
    first, second = decode_digests(item_digests(items), 2)
    assert first.checksum
    assert not second.checksum
    bare = item_digests([Item("a", "http://h/a"), Item("b", "http://h/b")])
    assert [digest.url for digest in decode_digests(bare, 2)] == [first.url, second.url]
    assert len(item_digests(items)) == 2 * len(bare)
    for damaged in (b"", bare[:-1], bare * 3):
        with pytest.raises(ValueError, match="digests"):
            decode_digests(damaged, 2)
