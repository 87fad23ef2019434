"""The directory sink against a real directory: files are whole or absent, replace nothing, and stay
inside.
"""

from __future__ import annotations

import errno
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from downloader.config.config import Config
from downloader.core.item_states import NO_CLAIM, OWNED, UNOWNED, Claim
from downloader.core.ownership import Rules, file_id
from downloader.errors import DestinationError, FetchError
from downloader.messages import Item, Lease
from downloader.process.long_work import READ_AT_ONCE
from downloader.sinks import directory as files
from downloader.sinks.directory import FilesSink
from downloader.sinks.files_writer import FilesWriter
from downloader.sinks.null import NullSink
from downloader.sinks.registry import open_sink, verifier
from downloader.sinks.sink import KEPT, NEW, REPLACED, SAME, Unprepared, Written
from downloader.sinks.stored import file_matches, place

Make = Callable[..., FilesSink]
NO_RULES = Rules()


@pytest.fixture(params=["unnamed", "named", "no links", "no proc"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return sinks as on file systems with and without O_TMPFILE, with and without hard links."""
    made: list[FilesSink] = []
    if request.param in ("named", "no links"):
        monkeypatch.setattr(files, "_TMPFILE", 0)
    if request.param == "no links":
        monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    if request.param == "no proc":
        monkeypatch.setattr(files, "_PROC_FDS", "/nowhere")

    def sink(root: Path, layout: str = "flat", rules: Rules = NO_RULES) -> FilesSink:
        made.append(FilesSink(root, layout, rules))
        return made[-1]

    yield sink
    for each in made:
        each.close()


def refuse(number: int) -> Callable[..., object]:
    def call(*args: object, **options: object) -> object:
        raise OSError(number, os.strerror(number))

    return call


def begin(sink: FilesSink, name: str, index: int = 0, claim: Claim = NO_CLAIM) -> FilesWriter:
    return sink.begin(Lease(0, 1, b"")).open(Item(name), index, claim)


def put(sink: FilesSink, name: str, *chunks: bytes, index: int = 0, claim: Claim = NO_CLAIM) -> int:
    writer = begin(sink, name, index, claim)
    for chunk in chunks:
        writer.write(chunk)
    content = b"".join(chunks)
    assert (writer.size, writer.crc) == (len(content), zlib.crc32(content))
    return writer.publish()


def on(path: Path, state: int = OWNED) -> Claim:
    """Return a claim on the file that has ``path`` now."""
    return Claim(state, file_id(os.lstat(path)))


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_file_appears_complete_or_not_at_all(make: Make, tmp_path: Path) -> None:
    sink = make(tmp_path)
    writer = begin(sink, "a")
    writer.write(b"one")
    writer.write(b"two")
    assert not (tmp_path / "a").exists()
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())
    assert writer.publish()
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert put(sink, "empty")
    gone = begin(sink, "b", 1)
    gone.write(b"x")
    gone.abort()
    gone.abort()
    assert names(tmp_path) == {"a", "empty"}
    assert sink.verify(Written(0, 0, "a", 6, zlib.crc32(b"onetwo")))
    assert not sink.verify(Written(0, 0, "a", 6, 1))
    assert not sink.verify(Written(0, 0, "a", 5, zlib.crc32(b"onetwo")))
    assert not sink.verify(Written(0, 0, "b", 0, 0))
    assert file_matches(str(tmp_path / "a"), None, 6, zlib.crc32(b"onetwo"))


@pytest.mark.parametrize("away", ["moved", "removed", "moved from below"])
def test_directory_that_goes_away_while_it_is_made_is_made_again(
    away: str, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    sink, mkdir, made = make(tmp_path / "d"), os.mkdir, []

    def and_gone(path: str, *args: int, dir_fd: int) -> None:
        mkdir(path, *args, dir_fd=dir_fd)
        made.append(path)
        if made == ["a"] and away == "moved":
            os.rename(tmp_path / "d" / "a", tmp_path / "away")
        elif made == ["a"] and away == "removed":
            os.rmdir(tmp_path / "d" / "a")
        elif made == ["a", "b"] and away == "moved from below":
            os.rename(tmp_path / "d" / "a" / "b", tmp_path / "away")

    monkeypatch.setattr(os, "mkdir", and_gone)
    assert put(sink, "a/b/c", b"one") == NEW
    assert (tmp_path / "d" / "a" / "b" / "c").read_bytes() == b"one"
    assert len(made) > 2


def test_taken_name_is_refused(make: Make, tmp_path: Path) -> None:
    sink = make(tmp_path)
    assert put(sink, "a", b"one")
    assert not put(sink, "a", b"one", index=1)
    with pytest.raises(FetchError) as caught:
        put(sink, "a", b"two", index=2)
    assert caught.value.code == "name-taken"
    assert (tmp_path / "a").read_bytes() == b"one"
    assert put(sink, "a", b"two", index=2, claim=on(tmp_path / "a")) == NEW
    assert (tmp_path / "a").read_bytes() == b"two"
    assert put(sink, "a", b"three", index=2, claim=on(tmp_path / "a", UNOWNED)) == REPLACED
    assert (tmp_path / "a").read_bytes() == b"three"
    # A file not known to be this item's is written again, even with the same content.
    before = (tmp_path / "a").stat().st_ino
    assert put(sink, "a", b"three", index=2, claim=on(tmp_path / "a")) == NEW
    assert (tmp_path / "a").stat().st_ino != before
    assert names(tmp_path) == {"a"}


def test_existing_file_is_replaced(make: Make, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "same").write_bytes(b"same")
    (tmp_path / "folder").mkdir()
    sink = make(tmp_path, rules=Rules((tmp_path / "same").stat().st_ctime_ns + 10**9))
    # Left by a run that was killed here; it must not be in the way.
    (tmp_path / ".downloader-0-0").write_bytes(b"left over")
    assert put(sink, "a", b"new") == REPLACED
    assert put(sink, "same", b"same") == KEPT
    with pytest.raises(FetchError, match="bad-name"):
        put(sink, "folder", b"x")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) - {".downloader-0-0"} == {"a", "same"}


@pytest.mark.parametrize("rules", ["keep", "fail"])
def test_existing_file_is_kept(make: Make, tmp_path: Path, rules: str) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "link").symlink_to("a")
    sink = make(tmp_path, rules=Rules((tmp_path / "a").stat().st_ctime_ns + 10**9, 0, rules))  # type: ignore[arg-type]
    for name in ("a", "link"):
        writer = begin(sink, name)
        writer.write(b"new one")
        if name == "a" and rules == "keep":
            assert writer.publish() == KEPT
            assert (writer.size, writer.crc) == (3, zlib.crc32(b"old"))
            assert sink.find_existing(name) == (3, zlib.crc32(b"old"))
            continue
        with pytest.raises(FetchError, match="file-exists"):
            writer.publish()
        with pytest.raises(FetchError, match="file-exists"):
            sink.find_existing(name)
    assert put(sink, "a", b"old") == KEPT
    assert put(sink, "a", b"mine", claim=on(tmp_path / "a")) == NEW
    assert sink.find_existing("none") is None
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("foreign", [True, False])
def test_large_existing_file_is_replaced_unread(make: Make, tmp_path: Path, foreign: bool) -> None:
    """One of the job is compared, and read for that, in a thread."""
    block, blocks = bytes(1 << 20), 257
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", len(block) * blocks)  # the same bytes
    before = os.stat(tmp_path / "a")
    sink = make(tmp_path, rules=Rules(before.st_ctime_ns + 10**9 if foreign else 0))
    writer = begin(sink, "a")
    for _ in range(blocks):
        writer.write(block)
    if not foreign:
        with pytest.raises(Unprepared):
            writer.publish()
        writer.prepare()
    assert writer.publish() == (REPLACED if foreign else SAME)
    after = os.stat(tmp_path / "a")
    assert (after.st_ino != before.st_ino) is foreign
    assert after.st_size == before.st_size


def test_large_file_that_is_changed_while_it_is_compared(make: Make, tmp_path: Path) -> None:
    """It is read again, but not for ever."""
    content = os.urandom(READ_AT_ONCE + 1)
    (tmp_path / "a").write_bytes(content)
    sink = make(tmp_path)
    writer = begin(sink, "a")
    writer.write(content)
    for _ in range(3):
        with pytest.raises(Unprepared):
            writer.publish()
        writer.prepare()
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").rename(tmp_path / "a")
    with pytest.raises(FetchError) as raised:
        writer.publish()
    assert raised.value.code == "name-taken"
    assert (tmp_path / "a").read_bytes() == content


def test_crash_between_link_and_unlink_does_not_truncate_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_TMPFILE", 0)
    (tmp_path / ".downloader-0-0").write_bytes(b"whole")
    os.link(tmp_path / ".downloader-0-0", tmp_path / "a")
    sink = FilesSink(tmp_path, "flat", Rules())
    writer = begin(sink, "a")
    assert (tmp_path / "a").read_bytes() == b"whole"
    writer.write(b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert not writer.publish()
    sink.close()
    assert names(tmp_path) == {"a"}


def test_missing_publish_method_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_TMPFILE", 0)
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    monkeypatch.setattr(sys, "platform", "other")
    sink = FilesSink(tmp_path, "flat", Rules())
    with pytest.raises(DestinationError, match="neither hard links nor a rename that refuses to replace"):
        put(sink, "a", b"x")
    sink.close()
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    "name", ["..", ".", "", "/a", "../a", "a/../../b", "a//b", "a/.", "a/", "a\0b", "./a", "a/../b"]
)
def test_sink_refuses_unsafe_names(make: Make, tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    sink = make(root)
    with pytest.raises(FetchError) as caught:
        begin(sink, name)
    assert caught.value.code == "bad-name"
    assert "\0" not in caught.value.detail
    assert not sink.verify(Written(0, 0, name, 0, 0))
    assert names(tmp_path) == set()


def test_symlinked_directories_are_not_followed(make: Make, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "deep").mkdir()
    (root / "deep" / "link").symlink_to("../../outside")
    (root / "file").write_bytes(b"")
    sink = make(root)
    for name in ("link/a", "deep/link/a", "link/b/c", "file/a"):
        with pytest.raises(FetchError) as caught:
            put(sink, name, b"x")
        assert caught.value.code == "bad-name"
    assert put(sink, "deep/a", b"x")
    assert list(outside.iterdir()) == []


def test_open_descriptors_are_bounded(make: Make, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    sink = make(tmp_path, "mirror")
    held = [begin(sink, f"first/{number}/a", number) for number in range(10)]
    for number in range(600):
        put(sink, f"d{number}/a", b"x", index=100 + number)
    assert len(os.listdir("/proc/self/fd")) - before <= 256 + 2 + 2 * 10
    for writer in held:
        writer.write(b"late")
        assert writer.publish()
    assert (
        len(os.listdir("/proc/self/fd")) - before <= 256 + 2
    )  # the root, and our own descriptors as names
    assert put(sink, "d0/b", b"y")
    sink.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(names(tmp_path)) == 611
    monkey = make(tmp_path)  # close() of the fixture has an open one to close
    assert monkey.verify(Written(0, 0, "d0/b", 1, zlib.crc32(b"y")))
    sink.close = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_is_respected(make: Make, tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        put(make(tmp_path), "d/a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "d/a").stat().st_mode & 0o777 == mode
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o777 & ~mask


def test_short_writes_and_full_disks(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = make(tmp_path)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    assert put(sink, "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"
    for number, says in (
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "output error"),
    ):
        writer = begin(sink, "b", 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", refuse(number))
            with pytest.raises(DestinationError, match=says):
                writer.write(b"x")
        writer.abort()
    assert names(tmp_path) == {"a"}


@pytest.mark.parametrize("room", [0, 3])
def test_a_small_file_that_cannot_be_written_has_no_name(
    room: int, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files have a ``write`` of their own; there is room for some bytes, or for none."""
    sink = make(tmp_path)
    real = os.write
    seen: list[set[str]] = []

    def full(fd: int, data: bytes) -> int:
        seen.append({name for name in names(tmp_path) if not name.startswith(".downloader-")})
        return real(fd, bytes(data)[:room]) if room else refuse(errno.ENOSPC)()  # type: ignore[return-value]

    monkeypatch.setattr(files, "_write", full)
    monkeypatch.setattr(os, "write", refuse(errno.ENOSPC))
    assert not sink.put(Item("a"), 0, b"0123456789", zlib.crc32(b"0123456789"), None)
    writer = begin(sink, "a")
    with pytest.raises(DestinationError, match="no space left"):
        writer.write(b"0123456789")
    writer.abort()
    assert names(tmp_path) == set()
    monkeypatch.setattr(os, "write", real)
    assert (
        sink.put(Item("a"), 0, b"0123456789", zlib.crc32(b"0123456789"), None)
        or put(sink, "a", b"0123456789") == NEW
    )
    assert (tmp_path / "a").read_bytes() == b"0123456789"
    assert not any(seen)


def test_missing_destination(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="the destination was removed"):
        FilesSink(tmp_path / "none", "flat", Rules())


def test_open_sink_chooses_by_configuration(tmp_path: Path) -> None:
    null = open_sink(Config(source="http://h", output=str(tmp_path), store="null"), Rules())
    assert isinstance(null, NullSink)
    writer = null.open(Item("../x"), 0)
    writer.write(b"abc")
    assert (writer.size, writer.crc, writer.publish()) == (3, zlib.crc32(b"abc"), True)
    assert null.verify(Written(0, 0, "x", 3, 0))
    writer.abort()
    null.close()
    sink = open_sink(Config(source="http://h", output=str(tmp_path), layout="hashed"), Rules())
    assert isinstance(sink, FilesSink)
    put(sink, "a", b"x")
    sink.close()
    assert names(tmp_path) == {place("a", "hashed")}
    assert place("a", "flat") == "a"


@pytest.mark.parametrize("store", ["files", "null"])
def test_verification_beside_a_sink_agrees_with_it(tmp_path: Path, store: str) -> None:
    sink = open_sink(Config(source="http://h", output=str(tmp_path), store=store), Rules())
    verify = verifier(store, tmp_path, "flat")
    assert sink.begin(Lease(0, 1, b"")).put(Item("a"), 0, b"abc", zlib.crc32(b"abc"), None)
    crc_of_a = zlib.crc32(b"abc")
    for name, size, crc in (("a", 3, crc_of_a), ("a", 3, 1), ("a", 4, crc_of_a), ("b", 0, 0)):
        written = Written(0, 0, name, size, crc)
        assert verify(written) is sink.verify(written)
    sink.close()
