"""The directory sink replaces the file that it has looked at, no other; a kill in between loses none."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from downloader.core.ownership import Rules
from downloader.errors import FetchError
from downloader.files.rename import exchange
from downloader.messages import Item, Lease
from downloader.sinks import directory as files
from downloader.sinks import files_writer
from downloader.sinks.directory import FilesSink
from downloader.sinks.exchanged import undo_exchange
from downloader.sinks.files_writer import FilesWriter
from downloader.sinks.sink import NEW, REPLACED, SAME, Written

Between = Callable[[Path], None]
AT_ONCE = 4


def put(root: Path, content: bytes, index: int = 0) -> int:
    """Store ``content`` as ``a``, where a file from before the job has that name."""
    sink = FilesSink(root, "flat", Rules(foreign_before(root)))
    try:
        writer = sink.begin(Lease(0, 1, b"")).open(Item("a"), index)
        writer.write(content)
        return writer.publish()
    finally:
        sink.close()


def foreign_before(root: Path) -> int:
    """Return the time behind the last change of ``root / "before"``."""
    return os.stat(root / "before").st_ctime_ns + 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with a file ``a`` from before the job."""
    (tmp_path / "a").write_bytes(b"mine")
    grow_old(tmp_path)
    return tmp_path


def grow_old(root: Path) -> None:
    """Make what is there a file from before the job, and what is stored from here on one of the job."""
    touch_after(root / "before", os.stat(root / "a").st_ctime_ns + 1)
    touch_after(root / "now", foreign_before(root))
    (root / "now").unlink()


def touch_after(path: Path, time: int) -> None:
    """Touch ``path`` until it was changed at ``time`` or later, by the clock of the file system."""
    path.touch()
    while os.stat(path).st_ctime_ns < time:
        path.touch()


def left(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {"a", "before"}


def another_item(root: Path) -> None:
    """Put a file in the place of ``a``, as another worker does."""
    (root / "new").write_bytes(b"of another item")
    (root / "new").rename(root / "a")


def edit(root: Path) -> None:
    (root / "a").write_bytes(b"mine, too")


def remove(root: Path) -> None:
    (root / "a").unlink()


def store_the_same(root: Path) -> None:
    (root / "new").write_bytes(b"theirs")
    (root / "new").rename(root / "a")


@pytest.mark.parametrize("supported", [True, False])
@pytest.mark.parametrize(
    ("between", "expected", "content"),
    [
        (another_item, "name-taken", b"of another item"),
        # It was changed during the job, so another item may have stored it.
        (edit, "name-taken", b"mine, too"),
        (remove, NEW, b"theirs"),
        (store_the_same, SAME, b"theirs"),
        (lambda root: None, REPLACED, b"theirs"),
    ],
)
@pytest.mark.parametrize("unnamed", [True, False])
def test_file_that_has_the_name_when_it_is_replaced(
    unnamed: bool,
    between: Between,
    expected: object,
    content: bytes,
    supported: bool,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the system cannot exchange files, what is put there in the last instant is replaced."""
    waiting = [between]
    replace = FilesWriter._replace

    def late(one: str, other: str, at: int) -> bool:
        while supported and waiting:
            waiting.pop()(root)
        return supported and exchange(one, other, at)

    def later(writer: FilesWriter, found: os.stat_result) -> bool:
        while not supported and waiting:
            waiting.pop()(root)
        return replace(writer, found)

    monkeypatch.setattr(files_writer, "exchange", late)
    monkeypatch.setattr(FilesWriter, "_replace", later)
    if not unnamed:
        monkeypatch.setattr(files, "_TMPFILE", 0)
    if isinstance(expected, str):
        with pytest.raises(FetchError) as raised:
            put(root, b"theirs")
        assert raised.value.code == expected
    else:
        assert put(root, b"theirs") == expected
    assert (root / "a").read_bytes() == content
    assert not left(root)


@pytest.mark.parametrize("unnamed", [True, False])
def test_only_one_of_many_replaces_a_file(
    unnamed: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have looked at it before the first of them replaces it."""
    if not unnamed:
        monkeypatch.setattr(files, "_TMPFILE", 0)
    outcomes: dict[int, object] = {}
    together = threading.Barrier(AT_ONCE, timeout=30)
    replace = FilesWriter._replace

    def late(writer: FilesWriter, found: os.stat_result) -> bool:
        together.wait()
        return replace(writer, found)

    def store(index: int, number: int) -> None:
        try:
            outcomes[index] = put(root, b"item %d of round %d" % (index, number), index)
        except FetchError as error:
            outcomes[index] = error.code

    monkeypatch.setattr(FilesWriter, "_replace", late)
    for number in range(10):
        outcomes.clear()
        threads = [threading.Thread(target=store, args=(index, number)) for index in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        (winner,) = [index for index, how in outcomes.items() if how == REPLACED]
        assert [how for how in outcomes.values() if how != REPLACED] == ["name-taken"] * (AT_ONCE - 1)
        assert (root / "a").read_bytes() == b"item %d of round %d" % (winner, number)
        assert not left(root)
        grow_old(root)


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("between", [another_item, None])
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_killed_while_it_replaces_a_file(
    calls: int, between: Between | None, unnamed: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the exchange, after it, and after the files were put back."""
    if not unnamed:
        monkeypatch.setattr(files, "_TMPFILE", 0)
    if calls == 2 and between is None:
        pytest.skip("there is no second exchange")
    made = 0

    def deadly(one: str, other: str, at: int) -> bool:
        nonlocal made
        if made == 0 and between is not None:
            between(root)
        if made < calls:
            exchange(one, other, at)
            made += 1
        if made == calls:
            os._exit(9)
        return True

    monkeypatch.setattr(files_writer, "exchange", deadly)
    child = os.fork()
    if not child:
        try:
            put(root, b"theirs")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert left(root) == {".downloader-0-0"}
    undo = undo_exchange(root, "flat", "")
    for _ in range(2):
        undo(Written(0, 0, "a", 6, zlib.crc32(b"theirs")))
        assert (root / "a").read_bytes() == (b"mine" if between is None else b"of another item")
        assert not left(root)


def test_undo_leaves_what_it_does_not_know(root: Path, tmp_path: Path) -> None:
    """What somebody has put there since, a directory, a link that leads outside."""
    undo = undo_exchange(root, "flat", "")
    written = Written(0, 0, "a", 6, zlib.crc32(b"theirs"))
    (root / ".downloader-0-0").write_bytes(b"unknown")
    undo(written)
    (root / "a").unlink()
    undo(written)
    (root / "a").mkdir()
    undo(written)
    assert (root / ".downloader-0-0").read_bytes() == b"unknown"
    undo(Written(0, 0, "../a", 6, 1))
    undo(Written(0, 0, "none/a", 6, 1))
