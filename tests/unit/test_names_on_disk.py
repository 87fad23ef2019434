"""Any name, from a source through the sink of each layout: inside the destination, one file per name, and
the name can be recovered; or ``bad-name``."""

from __future__ import annotations

import os
import tempfile
import zlib
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downloader.core.naming import BadName, SafeName, escape, mirror_path, unescape, url_name, url_path
from downloader.core.ownership import Rules
from downloader.errors import FetchError
from downloader.messages import Item, Lease
from downloader.sinks.directory import FilesSink
from downloader.sinks.stored import place

KEY = bytes(32)
NASTY = st.sampled_from(list("./\\%\0\x1b\n\r~-?:& aA\u0301é\u202e\ud800\udcff😀"))
PARTS = st.sampled_from(["..", ".", "", "a", "A", "a.", "CON", "-rf", ".downloader", "%2e%2e", "x" * 255])
RAW = st.text(NASTY | st.characters(exclude_categories=()), max_size=90) | st.lists(
    PARTS, min_size=1, max_size=5
).map("/".join)
RAW |= st.binary(max_size=90)  # type: ignore[assignment]


def as_bytes(raw: str | bytes) -> bytes:
    return raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")


def of_server(layout: str, raw: str | bytes) -> str:
    """Return the name that a file server's listing leads to."""
    if layout == "mirror":
        return mirror_path(["h", *(as_bytes(raw).split(b"/"))])
    return escape(raw)


def of_url(layout: str, raw: str | bytes) -> str:
    """Return the name that a URL in a list leads to."""
    url = "http://h/" + quote(as_bytes(raw), safe="/%.~-:&?")
    return url_path(url, KEY) if layout == "mirror" else url_name(url, KEY)


def back(layout: str, path: str) -> bytes:
    """Return what was listed, from the stored path."""
    parts = path.split("/")
    kept = parts[1:] if layout == "mirror" else parts[-1:]
    return b"/".join(unescape(SafeName(part)) for part in kept)


def stand(root: Path) -> dict[str, bytes]:
    return {
        os.path.relpath(os.path.join(folder, name), root): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(root)
        for name in names
    }


def store(sink: FilesSink, name: str, body: bytes, index: int) -> None:
    """Store as a worker does it."""
    batch = sink.begin(Lease(0, 1, b""))
    if not batch.put(Item(name), 0, body, zlib.crc32(body), None):
        writer = batch.open(Item(name), index)
        try:
            writer.write(body)
            writer.publish()
        finally:
            writer.abort()


@pytest.mark.parametrize("layout", ["flat", "hashed", "mirror"])
@given(names=st.lists(RAW, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_stored_paths_are_inside_injective_and_reversible(layout: str, names: list[str | bytes]) -> None:
    with tempfile.TemporaryDirectory() as outer:
        root = Path(outer, "deep", "root")
        root.mkdir(parents=True)
        sink = FilesSink(root, "hashed" if layout == "hashed" else "flat", Rules())
        stored: set[bytes] = set()
        refused = set()
        for index, raw in enumerate(dict.fromkeys(map(as_bytes, names))):
            try:
                name = of_server(layout, raw)
                store(sink, name, raw, index)
            except BadName:
                assert not raw or len(raw) > 85
            except FetchError as error:
                refused.add(error.code)
            else:
                stored.add(raw)
        sink.close()
        found = stand(root)
        assert set(found.values()) == stored
        assert len(found) == len(stored)
        for path, content in found.items():
            assert back(layout, path) == content
        assert os.listdir(outer) == ["deep"]
        assert os.listdir(Path(outer, "deep")) == ["root"]
        # Only where one is a file and the other needs a directory of that name.
        assert refused <= ({"bad-name"} if layout == "mirror" else set())


@pytest.mark.parametrize("layout", ["flat", "hashed", "mirror"])
@given(raw=RAW)
@settings(max_examples=60, deadline=None)
def test_no_listed_url_leads_outside(layout: str, raw: str | bytes) -> None:
    with tempfile.TemporaryDirectory() as outer:
        root = Path(outer, "root")
        root.mkdir()
        sink = FilesSink(root, "hashed" if layout == "hashed" else "flat", Rules())
        try:
            store(sink, of_url(layout, raw), b"x", 0)
        except (BadName, FetchError):
            assert stand(root) == {}
        else:
            assert list(stand(root).values()) == [b"x"]
        finally:
            sink.close()
        assert os.listdir(outer) == ["root"]


@pytest.mark.parametrize("layout", ["hashed", "mirror"])
@given(names=st.lists(RAW, min_size=1, max_size=5), at=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_a_parent_that_is_a_symlink_is_not_followed(layout: str, names: list[str | bytes], at: int) -> None:
    """Any of the directories, the first or a deeper one."""
    with tempfile.TemporaryDirectory() as outer:
        root, outside = Path(outer, "root"), Path(outer, "outside")
        root.mkdir()
        outside.mkdir()
        sink = FilesSink(root, "hashed" if layout == "hashed" else "flat", Rules())
        refused = set()
        for index, raw in enumerate(names):
            try:
                name = of_server(layout, raw)
            except BadName:
                continue
            path = Path(place(name, "hashed" if layout == "hashed" else "flat"))
            parents = list(path.parents)[:-1][::-1]
            if parents and index == 0:
                link = root / parents[min(at, len(parents) - 1)]
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(outside)
            try:
                store(sink, name, b"x", index)
            except FetchError as error:
                refused.add(error.code)
        sink.close()
        assert refused <= {"bad-name", "name-taken"}
        assert os.listdir(outside) == []


@given(one=RAW, other=RAW)
def test_names_differing_in_case_or_unicode_form_stay_two_files(
    one: str | bytes, other: str | bytes
) -> None:
    for layout in ("flat", "mirror"):
        try:
            same = of_server(layout, one) == of_server(layout, other)
        except BadName:
            return
        assert same == (as_bytes(one) == as_bytes(other))


def test_layout_paths() -> None:
    assert place(SafeName("a"), "flat") == "a"
    assert place("h/x/a", "mirror") == "h/x/a"
    assert place(SafeName("a"), "hashed").endswith("/a")
