"""Keys of samples and extensions of members: pure functions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.naming import escape, unescape
from downloader.core.shard_keys import (
    KEY_BYTES,
    extension_of,
    index_width,
    name_keys,
    possible_name_keys,
)

# As webdataset splits the name of a member (base_plus_ext).
SPLIT = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$").match
RAW = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(lambda text: text.strip("\0"))


@given(st.lists(RAW, unique=True, max_size=30))
def test_keys_are_unique_short_and_split_by_readers(raw: list[str]) -> None:
    names = [escape(each) for each in raw]
    keys = name_keys(names)
    assert len(set(keys)) == len(keys)
    for name, key, number in zip(names, keys, range(len(names)), strict=True):
        assert len(key.encode()) <= KEY_BYTES
        assert "." not in key
        found = SPLIT(f"{key}.json")
        assert found is not None
        assert found.groups() == (key, "json")
        assert key in possible_name_keys(name, number)


@given(RAW)
def test_key_of_a_short_name_can_be_reversed(raw: str) -> None:
    name = escape(raw)
    key = name_keys([name])[0]
    if "%~" not in key:
        stem = unescape(key)  # type: ignore[arg-type]
        assert raw.encode().startswith(stem)


def test_keys_of_one_stem_are_told_apart_by_their_numbers() -> None:
    assert name_keys(["a.jpg", "b", "a.png", "a", "a.b.jpg"]) == ["a", "b", "a%~2", "a%~3", "a%2Eb"]


def test_long_names_get_a_digest() -> None:
    keys = name_keys(["n" * 200 + ".jpg", "n" * 200 + ".png", "n" * 201 + ".jpg"])
    assert len(set(keys)) == 3
    assert {len(key) for key in keys} == {KEY_BYTES}


@pytest.mark.parametrize(
    ("name", "content_type", "expected"),
    [
        ("a.JPG", "image/png", "jpg"),
        ("a/b.tar.gz", "", "gz"),
        ("a", "image/jpeg; charset=x", "jpg"),
        ("a", "application/json", "json"),
        ("a.b/c", "", "bin"),
        (".hidden", "text/plain", "txt"),
        ("a.%3Fx", "", "bin"),
        ("a." + "x" * 13, "nonsense", "bin"),
        ("10.1234/D.1", "image/png", "png"),
        ("archive.001", "application/octet-stream", "001"),
        ("archive.001", "", "001"),
        ("clip.mp4", "image/png", "mp4"),
    ],
)
def test_extension_is_of_the_name_else_of_the_type(name: str, content_type: str, expected: str) -> None:
    assert extension_of(name, content_type) == expected


@pytest.mark.parametrize(
    ("name", "url", "content_type", "expected"),
    [
        ("a.jpg?w=300", "http://h/a.jpg?w=300", "image/png", "jpg"),
        ("a?v=1.2", "http://h/a?v=1.2", "image/png", "png"),
        ("a?v=1.2", "http://h/a?v=1.2", "", "bin"),
        ("get?photo.jpg", "http://h/get?photo.jpg", "", "bin"),
        ("x.tar.gz?a=b.c&d", "http://h/x.tar.gz?a=b.c&d", "", "gz"),
        ("a%~abc.jpg?w=1", "http://h/a.jpg?w=1&token=secret.x", "", "jpg"),
        ("a.jpg?q=%2520", "http://h/a.jpg?q=%20#f.gif", "", "jpg"),
        ("a.jpg;v=1.2", "http://h/a.jpg;v=1.2", "", "jpg"),
        # Made up for a path that ends in a slash, with what is added to it.
        ("index.html", "http://h/a/", "image/jpeg", "jpg"),
        ("index.html", "http://h", "image/jpeg", "jpg"),
        ("index.html", "http://h#a.gif", "image/jpeg", "jpg"),
        ("index.html", "http://h/a/", "text/html; charset=utf-8", "html"),
        ("index.html", "http://h/a/", "", "bin"),
        ("index.html?x=1", "http://h/?x=1", "image/png", "png"),
        ("index.html?x=%2F", "http://h?x=/", "image/png", "png"),
        ("index%~abcdefghijklmnop.html?x=1", "http://h/a/?x=1&token=secret", "image/png", "png"),
        ("index-2.html?x=1", "http://h/?x=1", "image/png", "png"),
        ("h/a/index-12.html", "http://h/a/", "image/png", "png"),
        ("index.html", "http://h/index.html", "image/png", "html"),
        ("index.html", "http://h/a/index.html?q=/", "image/png", "html"),
        ("a/index.html", "", "image/png", "html"),
        ("page.html", "http://h/", "image/png", "html"),
        # Names that are the list's own, or a file server's.
        ("what?.jpg", "http://h/x?id=1.2", "", "jpg"),
        ("what?.jpg", "", "", "jpg"),
        ("a;b.jpg", "http://h/c;d", "", "jpg"),
    ],
)
def test_extension_is_of_the_path_never_of_the_query(
    name: str, url: str, content_type: str, expected: str
) -> None:
    assert extension_of(name, content_type, url) == expected


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("image/jpg", "jpg"),
        ("image/pjpeg", "jpg"),
        ("IMAGE/JPEG;Charset=x", "jpg"),
        ("image/jpeg, image/jpeg", "jpg"),
        (" audio/mp3 ", "mp3"),
        ("audio/x-wav", "wav"),
        ("audio/wave", "wav"),
        ("audio/x-m4a", "m4a"),
        ("text/xml; charset=utf-8", "xml"),
        ("application/x-gzip", "gz"),
        ("application/x-zip-compressed", "zip"),
        ("application/x-pdf", "pdf"),
        ("text/json", "json"),
        ("image/x-png", "png"),
        ("application/octet-stream", "bin"),
        ("binary/octet-stream", "bin"),
        ('"image/jpeg"', "jpg"),
        ("'image/jpeg'; charset=\"x\"", "jpg"),
        ("image/jpeg ; charset=x", "jpg"),
        ("image/jpeg charset=utf-8", "jpg"),
        ("image / jpeg", "jpg"),
        ("image\\/jpeg", "jpg"),
        ("image/.jpg", "jpg"),
        ("Content-Type: image/jpeg", "jpg"),
        ('text/html; x="image/jpeg"', "html"),
        ("image/jfif", "jpg"),
        ("image/pjpg", "jpg"),
        ("image/x-citrix-png", "png"),
        ("jpg", "jpg"),
        (" JPEG ", "jpg"),
        (".png", "png"),
        ("mp4", "mp4"),
        ("pdf", "pdf"),
        ("image/svg+xml;charset=x", "svg"),
        ("image/", "bin"),
        ("image/*", "bin"),
        ("image", "bin"),
        ("", "bin"),
    ],
)
def test_extension_of_a_media_type_as_people_send_it(content_type: str, expected: str) -> None:
    assert extension_of("a", content_type) == expected


def test_index_has_at_least_four_digits() -> None:
    assert [index_width(files) for files in (1, 10_000, 10_001, 100_000)] == [4, 4, 5, 5]
