"""Members of tar files, compared with Python's tarfile."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.sinks.shards.ustar import BLOCK, END, Member, Members, header, header_of, padding

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1).filter(
    lambda name: len(name.encode()) <= 100
)


@given(NAMES, st.integers(0, 8**11 - 1), st.integers(0, 8**11 - 1))
def test_header_is_that_of_tarfile(name: str, size: int, modified: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, modified
    assert header(name.encode(), size, modified) == info.tobuf(tarfile.USTAR_FORMAT, "utf-8")


def test_sizes_that_do_not_fit_are_as_gnu_tar_writes_them() -> None:
    info = tarfile.TarInfo("large")
    info.size = 9 << 30
    written = header(b"large", 9 << 30, 0)
    assert written[124:136] == info.tobuf(tarfile.GNU_FORMAT)[124:136]
    assert tarfile.TarInfo.frombuf(written, "utf-8", "strict").size == 9 << 30


def test_a_size_below_zero_is_no_header() -> None:
    """Somebody may have written it; with a size of -512 the next header is this one."""
    block = bytearray(header(b"name", 512, 0))
    block[124:136] = b"-0000000512\0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    assert header_of(bytes(block), BLOCK) is None


def test_names_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 100 bytes"):
        header(b"n" * 101, 0, 0)


def written(path: Path, contents: list[bytes]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, content in enumerate(contents):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    path.write_bytes(body.getvalue())
    return body.getvalue()


def whole_members(path: Path) -> list[Member]:
    """Return the members of a tar file, up to the first that is not whole."""
    found = []
    with open(path, "rb") as file:
        members = Members(file)
        while (member := members.next()) is not None:
            content = bytearray()
            if not members.content(member, content.extend):
                break
            assert len(content) == member.size
            found.append(member)
    return found


def test_members_of_tarfile_are_found(tmp_path: Path) -> None:
    contents = [b"", b"a", b"b" * BLOCK, b"c" * (BLOCK + 1), b"d" * 200_000, b"e" * (1 << 20)]
    contents += [b"f" * ((1 << 20) + 1), b"g" * (5 << 19), b"h"]
    whole = written(tmp_path / "t.tar", contents)
    found = whole_members(tmp_path / "t.tar")
    assert [each.name for each in found] == [f"{number}.bin" for number in range(len(contents))]
    assert [whole[each.offset : each.offset + each.size] for each in found] == contents


@pytest.mark.parametrize("cut", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1])
def test_members_that_are_not_whole_are_not_found(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    whole = written(path, [b"first", b"second"])
    os.truncate(path, 2 * BLOCK + cut)
    assert [each.name for each in whole_members(path)] == ["0.bin"]
    damaged = bytearray(whole)
    damaged[2 * BLOCK + 3] ^= 1
    path.write_bytes(damaged)
    assert [each.name for each in whole_members(path)] == ["0.bin"]


def test_padding_fills_the_last_block() -> None:
    assert [len(padding(size)) for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1)] == [0, 511, 1, 0, 511]
    assert set(END) == {0}
