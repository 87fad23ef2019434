"""Files of the tool's own whose content somebody has made: names, lengths, tables, terminal controls."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from bounded_runs import Outside, bounded, check
from harness import DevServer, serving

from downloader.storage.schema import row_sum

HUGE = 2 << 30


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=20) as server:
        yield server


@pytest.fixture(scope="module")
def template(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dest = tmp_path_factory.mktemp("template") / "d"
    assert bounded(server.url, "-o", dest, "--workers", 1).code == 0
    return dest


@contextlib.contextmanager
def opened(dest: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(dest / ".downloader/journal.sqlite")) as database:
        yield database
        database.commit()


def put(dest: Path, table: str, *values: object) -> None:
    """Replace the row of the same key by one whose checksum is right."""
    with opened(dest) as database:
        places = ", ".join("?" * (len(values) + 1))
        database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({places})", (*values, row_sum(*values)))


def bomb(size: int, byte: bytes = b"\xa0") -> bytes:
    """Return the zlib stream of a list of so many empty names.

    Its blocks refer to nothing before them, so one is compressed and repeated.
    """
    begin, piece, count = b"\xdd" + struct.pack(">I", size), byte * (1 << 20), size >> 20
    packer = zlib.compressobj(9)
    head = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    last = zlib.compressobj(9, wbits=-zlib.MAX_WBITS).flush()
    checksum = zlib.adler32(begin)
    for _ in range(count):
        checksum = zlib.adler32(piece, checksum)
    return head + block * count + last + struct.pack(">I", checksum)


def listing(dest: Path) -> tuple[bytes, bytes]:
    with opened(dest) as database:
        cursor, origin = database.execute("SELECT cursor, origin FROM listing WHERE seq = 0").fetchone()
    return cursor, origin


def names_without_end(dest: Path, outside: Outside) -> None:
    cursor, origin = listing(dest)
    put(dest, "listing", 0, cursor, bomb(HUGE), origin)


def names_that_lead_elsewhere(dest: Path, outside: Outside) -> None:
    cursor, origin = listing(dest)
    names = [f"../{outside.root.name}/precious", "/etc/passwd", *(f"n{number}" for number in range(18))]
    put(dest, "listing", 0, cursor, zlib.compress(msgspec.msgpack.encode(names)), origin)


def states_without_end(dest: Path, outside: Outside) -> None:
    put(dest, "published", 0, bomb(HUGE, b"\0"))


def number_for_bytes(dest: Path, outside: Outside) -> None:
    put(dest, "published", 0, 10_000_000_000)


def count_without_end(dest: Path, outside: Outside) -> None:
    put(dest, "batch", 0, 1 << 40, 0, 0, 0, 0, 0)


def text_for_a_count(dest: Path, outside: Outside) -> None:
    put(dest, "batch", 0, "many", 1, 20, 0, 2000, 0)


def failure_of_no_item(dest: Path, outside: Outside) -> None:
    put(dest, "failure", 0, 5000, "n", "u", "http-404", "", 1)
    put(dest, "batch", 0, 20, 1, 20, 1, 2000, 0)


def code_that_there_is_not(dest: Path, outside: Outside) -> None:
    put(dest, "failure", 0, 1, "n", "u", "\x1b]0;owned\x07\x1b[2J", "", 1)
    put(dest, "batch", 0, 20, 1, 20, 1, 2000, 0)


def _job(dest: Path, **changed: object) -> None:
    with opened(dest) as database:
        (text,) = database.execute("SELECT value FROM job WHERE key = 'job'").fetchone()
    put(dest, "job", "job", msgspec.json.encode({**msgspec.json.decode(text), **changed}).decode())


def terminal_controls(dest: Path, outside: Outside) -> None:
    _job(dest, shown="http://h/\x1b]0;owned\x07\x1b[2J\u202e", source="0" * 64)


def layout_of_noise(dest: Path, outside: Outside) -> None:
    _job(dest, store="tar", layout="noise")


def trigger(dest: Path, outside: Outside) -> None:
    with opened(dest) as database:
        database.execute("CREATE TRIGGER t AFTER UPDATE ON job BEGIN DELETE FROM batch; END")


def view(dest: Path, outside: Outside) -> None:
    with opened(dest) as database:
        database.execute("ALTER TABLE failure RENAME TO old")
        database.execute("CREATE VIEW failure AS SELECT * FROM old")


def check_that_fails(dest: Path, outside: Outside) -> None:
    with opened(dest) as database:
        database.execute("DROP TABLE failure")
        database.execute("CREATE TABLE failure (seq, idx, name CHECK (name != 'x'), sum)")


def super_journal(dest: Path, outside: Outside) -> None:
    """Let SQLite believe that a transaction over several databases was interrupted, and name a file."""
    path = dest / ".downloader/journal.sqlite"
    with opened(dest) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("BEGIN IMMEDIATE")
        database.execute("DELETE FROM failure")
        database.execute("PRAGMA user_version = 3")
    name = os.fsencode(outside.root / "precious")
    total = sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF
    magic = bytes.fromhex("d9d505f920a163d7")
    size = path.stat().st_size // 4096
    header = magic + struct.pack(">IIIII", 0, 1, size, 512, 4096)
    tail = struct.pack(">I", size + 1) + name + struct.pack(">II", len(name), total) + magic
    path.with_name("journal.sqlite-journal").write_bytes(header.ljust(512, b"\0") + tail)


# What is made, and the codes of `status` and `verify`.
RUN_TOO = (names_that_lead_elsewhere, trigger, super_journal)
CRAFTED: tuple[tuple[Callable[[Path, Outside], None], int, int], ...] = (
    (names_without_end, 0, 4),
    (names_that_lead_elsewhere, 0, 1),
    (states_without_end, 0, 4),
    (number_for_bytes, 0, 4),
    (count_without_end, 4, 4),
    (text_for_a_count, 4, 4),
    (failure_of_no_item, 4, 4),
    (code_that_there_is_not, 4, 4),
    (terminal_controls, 0, 0),
    (layout_of_noise, 0, 4),
    (trigger, 4, 4),
    (view, 4, 4),
    (check_that_fails, 4, 4),
    (super_journal, 4, 4),
)


@pytest.mark.parametrize(("craft", "status", "verify"), CRAFTED, ids=[each[0].__name__ for each in CRAFTED])
def test_crafted_journal(
    craft: Callable[[Path, Outside], None],
    status: int,
    verify: int,
    template: Path,
    server: DevServer,
    tmp_path: Path,
) -> None:
    dest = tmp_path / "d"
    shutil.copytree(template, dest)
    outside = Outside(tmp_path / "outside")
    craft(dest, outside)
    outside.before = outside.now()
    found = []
    for argv in (("status", dest), ("verify", dest), (server.url, "-o", dest, "--retry-failed")):
        if argv[0] == server.url and craft not in RUN_TOO:
            continue
        done = bounded(*argv)
        check(craft.__name__, str(argv[0]), done)
        assert outside.now() == outside.before, done
        found.append(done)
    assert [done.code for done in found[:2]] == [status, verify], found
