"""The room of the tool's own files: nothing is opened but what is expected, and nothing is followed."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from downloader.core.inflate import inflate
from downloader.core.naming import printable, printable_json
from downloader.errors import ConfigError, DestinationError
from downloader.files.database import connect
from downloader.files.directory import Directory, Entry, UnsafeFile, open_home, open_regular

NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path) -> Directory:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_bytes(b"kept")
    return open_home(tmp_path / "home", create=True)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/etc/passwd", "../outside/kept", "a/../../outside", "a//b", "a/", "a\0b"]
)
def test_names_that_lead_elsewhere(name: str, home: Directory) -> None:
    with pytest.raises(UnsafeFile, match="restart begins anew"):
        home / name
    with pytest.raises(UnsafeFile):
        (home / "a").beside(name)


def test_what_the_file_system_refuses_is_told_with_the_path(home: Directory) -> None:
    name = "n" * 256
    with pytest.raises(DestinationError, match=f"cannot use {home}/{name}: File name too long"):
        (home / name).reader()
    with pytest.raises(FileNotFoundError):  # an answer
        (home / "missing").read(10)


OPENINGS: dict[str, Callable[[Entry], object]] = {
    "read": lambda entry: entry.read(100),
    "write": lambda entry: entry.open(os.O_WRONLY),
    "both": lambda entry: entry.open(os.O_RDWR | os.O_CREAT),
    "cut": lambda entry: entry.open(os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    "check": lambda entry: entry.check(write=True),
}


@pytest.mark.parametrize("opening", OPENINGS)
def test_only_regular_files_are_opened(opening: str, home: Directory, tmp_path: Path) -> None:
    opened = OPENINGS[opening]
    place = tmp_path / "home"
    (place / "link").symlink_to(tmp_path / "outside/kept")
    (place / "dangling").symlink_to(tmp_path / "outside/new")
    (place / "directory").mkdir()
    os.mkfifo(place / "pipe")
    for name, kind in (
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("directory", "a directory"),
        ("pipe", "a named pipe"),
    ):
        with pytest.raises(UnsafeFile, match=f"{name} is {kind}, not a file of this program; remove it"):
            opened(home / name)
    (place / "above").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafeFile, match="above is a symbolic link, not a directory"):
        opened(home / "above/kept")
    assert (tmp_path / "outside/kept").read_bytes() == b"kept"
    assert os.listdir(tmp_path / "outside") == ["kept"]


def test_a_file_with_a_second_name_is_read_only(home: Directory, tmp_path: Path) -> None:
    os.link(tmp_path / "outside/kept", tmp_path / "home/twin")
    assert (home / "twin").read(100) == b"kept"
    with pytest.raises(UnsafeFile, match="hard link"):
        (home / "twin").open(os.O_WRONLY | os.O_TRUNC)
    (home / "twin").write(b"new")  # in its place
    os.close((home / "other").create())
    assert (tmp_path / "outside/kept").read_bytes() == b"kept"


def test_another_users_file_is_not_opened(home: Directory, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can make files of another user")
    (home / "file").write(b"x")
    os.chown(tmp_path / "home/file", NOBODY, NOBODY)
    with pytest.raises(UnsafeFile, match="file belongs to another user"):
        (home / "file").read(10)
    (home / "below").make_directory()
    os.chown(tmp_path / "home/below", NOBODY, NOBODY)
    with pytest.raises(UnsafeFile, match="below belongs to another user"):
        (home / "below/x").exists()


def test_new_files_replace_what_is_there_but_no_directory(home: Directory, tmp_path: Path) -> None:
    (tmp_path / "home/link").symlink_to(tmp_path / "outside/kept")
    with (home / "link").writer() as file:
        file.write(b"mine")
    assert (tmp_path / "outside/kept").read_bytes() == b"kept"
    assert (home / "link").read(10) == b"mine"
    (home / "directory").make_directory()
    for change in (home / "directory").create, (home / "directory").unlink:
        with pytest.raises(UnsafeFile, match="is a directory"):
            change()
    with pytest.raises(UnsafeFile, match="is a directory"):
        (home / "directory").write(b"x")


def test_trees_are_removed_without_following_links(home: Directory, tmp_path: Path) -> None:
    (home / "tree").make_directory()
    (home / "tree/a").write(b"x")
    (tmp_path / "home/tree/link").symlink_to(tmp_path / "outside")
    (home / "tree").remove_tree()
    (home / "tree").remove_tree()
    assert home.names() == []
    assert (tmp_path / "outside/kept").read_bytes() == b"kept"


def test_reads_are_bounded(home: Directory) -> None:
    (home / "file").write(b"12345")
    assert (home / "file").read(5) == b"12345"
    with pytest.raises(UnsafeFile, match="larger than any such file"):
        (home / "file").read(4)


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o1777])
def test_a_home_that_everybody_can_write_is_refused(mode: int, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(mode)
    with pytest.raises(ConfigError, match="every user"):
        open_home(tmp_path / "home", write=False)
    (tmp_path / "home").chmod(0o700)
    (tmp_path / "home" / "below").mkdir()
    (tmp_path / "home" / "below").chmod(mode)
    with (
        open_home(tmp_path / "home") as home,
        pytest.raises(UnsafeFile, match=r"below can be written by every user; take .* \(chmod o-w\)"),
    ):
        (home / "below/x").exists()


def test_another_users_home_is_read_only(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can make directories of another user")
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", NOBODY, NOBODY)
    with pytest.raises(ConfigError, match="belongs to another user"):
        open_home(tmp_path / "home", create=True)
    open_home(tmp_path / "home", write=False).close()


def test_a_home_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "home").symlink_to("there")
    with pytest.raises(ConfigError, match="symbolic link"):
        open_home(tmp_path / "home", create=True)
    with pytest.raises(UnsafeFile):
        open_regular(tmp_path / "home")


def test_an_unsafe_file_is_both_kinds_of_error() -> None:
    assert issubclass(UnsafeFile, OSError)
    assert issubclass(UnsafeFile, DestinationError)
    assert UnsafeFile.exit_code == 4


SCHEMA = "CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b TEXT) WITHOUT ROWID;"


def test_databases_have_our_tables_and_nothing_that_acts(home: Directory) -> None:
    database = home / "x.sqlite"
    connection = connect(database, SCHEMA, create=True)
    connection.executescript(SCHEMA)
    connection.execute("CREATE TABLE of_a_later_version (a)")
    connection.close()
    connect(database, SCHEMA).close()
    for statement in (
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE INDEX i ON t (abs(a))",
    ):
        with contextlib.closing(sqlite3.connect(database)) as direct, direct:
            direct.execute(statement)
        with pytest.raises(sqlite3.DatabaseError, match="none of this program"):
            connect(database, SCHEMA)
        with contextlib.closing(sqlite3.connect(database)) as direct, direct:
            direct.execute(f"DROP {statement.split()[1]} {statement.split()[2]}")
    connect(database, SCHEMA).close()


def interior_page(size: int, children: list[int], at: int = 0) -> bytearray:
    """Return a page of a table that leads to ``children`` and the last of them (SQLite's format, 1.6)."""
    page, end, cells = bytearray(size), size, len(children)
    for number, child in enumerate(children):
        cell = child.to_bytes(4, "big") + bytes([0x81, number])  # a key above 128
        end -= len(cell)
        page[end : end + len(cell)] = cell
        place = at + 12 + 2 * number
        page[place : place + 2] = end.to_bytes(2, "big")
    page[at] = 5
    page[at + 3 : at + 7] = cells.to_bytes(2, "big") + end.to_bytes(2, "big")
    page[at + 8 : at + 12] = children[-1].to_bytes(4, "big")
    return page


def test_a_schema_that_stands_for_more_than_anybody_can_read_is_refused(home: Directory) -> None:
    """Pages of it lead to the same one 100 times each, 6 levels deep, and SQLite reads on and on."""
    database = home / "x.sqlite"
    connection = connect(database, SCHEMA, create=True)
    connection.execute("CREATE TABLE keyed (a UNIQUE)")
    [(size,)] = connection.execute("PRAGMA page_size")
    connection.execute("CREATE TABLE rows (type, name, tbl_name, rootpage, sql)")
    connection.execute("INSERT INTO rows SELECT * FROM sqlite_master WHERE type = 'index'")
    [(leaf,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rows'")
    connection.close()
    content = bytearray(Path(database).read_bytes())
    # What the schema has is first, on a page of its own: without the file's head before it.
    first, pointers = content[:size], 2 * int.from_bytes(content[103:105], "big")
    first[: 8 + pointers] = content[100 : 108 + pointers]
    content += first
    schema, child = len(content) // size, leaf
    for _ in range(5):
        content += interior_page(size, [child] * 100)
        child = len(content) // size
    content[100:size] = interior_page(size, [schema] + [child] * 99, at=100)[100:]
    content[28:32] = (len(content) // size).to_bytes(4, "big")
    content[92:96] = content[24:28]
    Path(database).write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError, match="does not end"):
        connect(database, SCHEMA)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_files_of_a_database_are_checked(suffix: str, home: Directory, tmp_path: Path) -> None:
    database = home / "x.sqlite"
    connect(database, SCHEMA, create=True).close()
    (tmp_path / f"home/x.sqlite{suffix}").unlink(missing_ok=True)
    (tmp_path / f"home/x.sqlite{suffix}").symlink_to(tmp_path / "outside/kept")
    with pytest.raises(UnsafeFile, match="symbolic link"):
        connect(database, SCHEMA, create=True)
    assert (tmp_path / "outside/kept").read_bytes() == b"kept"


def test_a_directory_that_is_replaced_is_noticed(home: Directory, tmp_path: Path) -> None:
    connect(home / "x.sqlite", SCHEMA, create=True).close()
    (tmp_path / "home").rename(tmp_path / "away")
    other = open_home(tmp_path / "home", create=True)
    connect(other / "x.sqlite", SCHEMA, create=True).close()
    with pytest.raises(UnsafeFile, match="replaced while it was opened"):
        connect(home / "x.sqlite", SCHEMA)


def test_inflating_is_bounded() -> None:
    import zlib

    packed = zlib.compress(b"x" * 1000)
    assert inflate(packed, 1000) == b"x" * 1000
    for data, most, why in (
        (packed, 999, "more than 999 bytes"),
        (packed[:-6], 1000, "cut off"),
        (b"noise", 1000, "incorrect header"),
        (b"", 1000, "cut off"),
    ):
        with pytest.raises(ValueError, match=why):
            inflate(data, most)
    assert inflate(zlib.compress(b""), 0) == b""


def test_printable_text_has_no_controls_but_ends_of_lines() -> None:
    assert printable("a\nb") == "a\nb"
    text = '{"a": "\x9b2J\u202e\U000e0001"}'
    assert printable_json(text) == '{"a": "\\u009b2J\\u202e\\udb40\\udc01"}'
    assert json.loads(printable_json(text)) == json.loads(text)
    assert printable("a\x1b[2J\r\x9b\u202eb\ud800") == "a\\x1b[2J\\r\\x9b\\u202eb\\ud800"
