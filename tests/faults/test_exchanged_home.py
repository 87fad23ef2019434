"""Who may write in DEST exchanges `.downloader` while SQLite is opening what is in it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from downloader.files.database import connect
from downloader.files.directory import open_home

MAGIC = bytes.fromhex("d9d505f920a163d7")
PAGE = 4096
SCHEMA = "CREATE TABLE t (n INTEGER);"

# Exchanges the two directories when the descriptors of the process are listed for the N-th time: SQLite has
# opened the database then, and nothing beside it. And back, where that is wanted, at the next time.
EXCHANGE = """
import contextlib, ctypes, os, sqlite3, sys
from pathlib import Path
from downloader.files.database import connect
from downloader.files.directory import UnsafeFile, open_home

place, back, schema = Path(sys.argv[1]), sys.argv[2] == "back", sys.argv[3]
libc, listed = ctypes.CDLL(None, use_errno=True), 0

def exchange():
    first, second = (os.fsencode(place / name) for name in ("home", "evil"))
    if libc.renameat2(-100, first, -100, second, 2):
        raise OSError(ctypes.get_errno(), "renameat2")

def hook(event, args):
    global listed
    if event == "os.listdir" and args[0] == "/proc/self/fd":
        listed += 1
        if listed == 1 or (back and listed == 2):
            exchange()

sys.addaudithook(hook)
home = open_home(place / "home")
try:
    connection = connect(home / "d", schema)
except UnsafeFile as error:
    print("refused", error)
except sqlite3.Error as error:
    print("failed", error)
else:
    print("rows", connection.execute("SELECT n FROM t").fetchall())
    connection.close()
"""


def super_journal(victim: Path) -> bytes:
    """Return a rollback journal of no page that names ``victim`` as its super-journal."""
    name = os.fsencode(victim)
    head = MAGIC + b"".join(n.to_bytes(4, "big") for n in (0, 1, 1, 512, PAGE))
    lock = (0x40000000 // PAGE + 1).to_bytes(4, "big")
    end = len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big")
    return head.ljust(512, b"\0") + lock + name + end + MAGIC


@pytest.fixture
def place(tmp_path: Path) -> Path:
    home = open_home(tmp_path / "home", create=True)
    with contextlib.closing(connect(home / "d", SCHEMA, create=True)) as made:
        made.executescript(SCHEMA)
        made.execute("INSERT INTO t VALUES (1)")
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "evil").mkdir()
    return tmp_path


def exchanged(place: Path, back: bool) -> str:
    """Return what the program says that opens the database; "home" is there again afterwards."""
    command = [sys.executable, "-c", EXCHANGE, place, "back" if back else "stay", SCHEMA]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    if not back:
        os.rename(place / "home", place / "theirs")
        os.rename(place / "evil", place / "home")
    return said


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2")
@pytest.mark.parametrize("back", [True, False])
def test_a_journal_of_somebody_else_removes_no_file(back: bool, place: Path) -> None:
    (place / "evil/d").write_bytes(b"x" * 100)
    (place / "evil/d-journal").write_bytes(super_journal(place / "victim"))
    kept = (place / "home/d").read_bytes()
    said = exchanged(place, back)
    assert (place / "victim").read_bytes() == b"precious"
    assert "refused" in said, said
    assert (place / "home/d").read_bytes() == kept


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2")
@pytest.mark.parametrize("back", [True, False])
def test_a_log_of_somebody_else_changes_nothing(back: bool, place: Path) -> None:
    """It is one of the same database; what is in it must not get into ours when that is closed."""
    kept = (place / "home/d").read_bytes()
    (place / "evil/d").write_bytes(kept)
    with contextlib.closing(sqlite3.connect(place / "evil/d", isolation_level=None)) as theirs:
        theirs.execute("INSERT INTO t VALUES (666)")
        log = (place / "evil/d-wal").read_bytes()
    (place / "evil/d").write_bytes(kept)
    (place / "evil/d-wal").write_bytes(log)
    said = exchanged(place, back)
    assert "refused" in said, said
    assert (place / "home/d").read_bytes() == kept


def test_what_is_not_exchanged_is_opened(place: Path) -> None:
    """So the tests above see the exchange; also a database of before, which has no log."""
    with contextlib.closing(sqlite3.connect(place / "home/d", isolation_level=None)) as before:
        before.execute("PRAGMA journal_mode = DELETE")
    home = open_home(place / "home")
    for _ in range(2):
        with contextlib.closing(connect(home / "d", SCHEMA)) as connection:
            assert connection.execute("SELECT n FROM t").fetchall() == [(1,)]
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
