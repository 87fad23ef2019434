"""Check independently: what the test server serves, the files on the disk, and the journal.

It imports nothing of ``downloader``. It implements the recipe of the test server's files (the docstring of
``downloader/testserver/content.py``) and reads the journal's tables (``downloader/storage/journal.py``) in
code of its own, and raises ``Wrong`` with all disagreements.

    python tests/checker.py DEST --files 1000 --size 100-5000 [--interrupted]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

HOME = ".downloader"
BATCHES = (
    "SELECT seq, count, done, stored, failed, bytes, unverified, cursor, names, origin, marks"
    " FROM batch JOIN listing USING (seq) LEFT JOIN published USING (seq) ORDER BY seq"
)
OWN_FILES = {"active", "lock", "name-key", "journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"}
RECORDS = "records-"  # for a manifest


class Wrong(AssertionError):
    """The disagreements found, one per line."""


@dataclass(frozen=True)
class Truth:
    """What the test server serves: ``files`` of ``least`` to ``most`` bytes."""

    files: int
    least: int = 100
    most: int = 100

    def name(self, index: int) -> str:
        return f"file-{index:010d}"

    def index(self, name: str) -> int | None:
        match = re.fullmatch(r"file-([0-9]{10})", name)
        return int(match[1]) if match and int(match[1]) < self.files else None

    def content(self, name: str) -> bytes:
        size = self.least
        if self.most > self.least:
            drawn = hashlib.blake2b(name.encode(), digest_size=8).digest()
            size += int.from_bytes(drawn, "big") % (self.most - self.least + 1)
        blocks = range(0, max(size, 1), 1 << 20)
        whole = b"".join(
            hashlib.shake_128(f"{name}:{number}".encode()).digest(min(1 << 20, size - start))
            for number, start in enumerate(blocks)
        )
        return whole[:size]


class Stored(NamedTuple):
    """A published file, as an item state of the journal or of a ledger records it."""

    size: int
    crc: int


@dataclass
class ItemStates:
    """Item states by index in the batch: published, and in flight; ``intended``: of these, those about to
    be published."""

    published: dict[int, Stored] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    intended: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, raw: bytes, count: int) -> ItemStates:
        """Parse ``count`` states (i64), then as many checksums (u32), little-endian."""
        states = struct.unpack_from(f"<{count}q", raw)
        crcs = struct.unpack_from(f"<{count}I", raw, 8 * count)
        return cls(
            {i: Stored((state - 2) % (1 << 59), crcs[i]) for i, state in enumerate(states) if state >= 2},
            {i for i, state in enumerate(states) if state == 1 or state <= -3},
            {i for i, state in enumerate(states) if state <= -3},
        )


class Checked(NamedTuple):
    """The counts of a check."""

    listed: int
    stored: int
    failed: int
    open_batches: int


def ledgers(dest: Path, names: str = "ledger-*") -> Iterator[tuple[int, ItemStates]]:
    """Yield batch and item states of every slot of every ledger that a killed run has left behind.

    Then those of the items that have entries of their own, each with its batch.
    """
    for path in sorted((dest / HOME).glob(names)):
        content = path.read_bytes()
        if len(content) < 32:
            continue  # killed while it was made
        _, items, slots, entries = struct.unpack_from("<QQQQ", content)
        length = -(-(16 + 12 * items) // 16) * 16
        end = 32 + slots * length
        for start in range(32, end, length):
            owner, count = struct.unpack_from("<QQ", content, start)
            if owner:
                yield owner - 1, ItemStates.of(content[start + 16 : start + 16 + 12 * count], count)
        for start in range(end, end + 32 * entries, 32):
            owner, state, crc, index, _ = struct.unpack_from("<QqQII", content, start)
            if owner:
                states = [0] * index + [state]
                crcs = [0] * index + [crc]
                raw = struct.pack(f"<{index + 1}q{index + 1}I", *states, *crcs)
                yield owner - 1, ItemStates.of(raw, index + 1)


def in_flight(dest: Path) -> int:
    """Return how many files were in flight, according to the ledgers, when the run was killed."""
    return sum(len(marks.in_flight) for _, marks in ledgers(dest))


def check(
    dest: Path,
    truth: Truth,
    *,
    interrupted: bool = False,
    limited: bool = False,
    failed: Mapping[str, str] | None = None,
    beside: Collection[str] | None = None,
    foreign: Collection[str] = (),
) -> Checked:
    """Raise ``Wrong`` unless ``dest`` (layout flat) is in the required state.

    ``interrupted``: the run may have ended at any instant. ``limited``: with --limit, of ``truth.files``.
    ``failed``: name → code of what must have failed. ``beside``: what else stands beside ``dest``.
    ``foreign``: files in it that are not ours.
    """
    inspection = _Inspection(dest, truth, foreign)
    inspection.disk()
    if beside is not None:
        found = {path.name for path in dest.parent.iterdir()} - {dest.name}
        inspection.expect(found == set(beside), f"beside the destination: {sorted(found)}")
    has_journal = (dest / HOME / "journal.sqlite").exists()
    if has_journal or not interrupted:
        with _copied(dest) as database:
            inspection.journal(database, interrupted)
    if not interrupted:
        inspection.complete(dict(failed or {}), limited)
    if inspection.wrong:
        raise Wrong("\n".join([f"{dest}:", *inspection.wrong[:40]]))
    return inspection.checked()


def left_in(root: Path) -> bytes:
    """Return all names and contents under ``root``, with what a journal has packed unpacked."""
    found = []
    for path in root.rglob("*"):
        found.append(os.fsencode(path))
        if path.is_file():
            found.append(path.read_bytes())
        if path.name == "journal.sqlite":
            with contextlib.closing(sqlite3.connect(path)) as database:
                for names, origin in database.execute("SELECT names, origin FROM listing"):
                    found += [zlib.decompress(names), origin]
    return b"\n".join(found)


def agree(dest: Path, status: int, report: Mapping[str, Any] | None = None) -> None:
    """Raise ``Wrong`` unless disk, journal, exit code and ``report`` of a run that has just ended agree,
    for any source and layout."""
    wrong: list[str] = []

    def expect(holds: bool, text: str) -> None:
        if not holds:
            wrong.append(text)

    journal = dest / HOME / "journal.sqlite"
    if status in (2, 3) or not journal.exists():
        expect(status != 0 or not dest.exists(), "exit 0, and no journal")
    else:
        with _copied(dest) as database:
            _agree(dest, database, status, report, expect)
    if wrong:
        raise Wrong("\n".join([f"{dest}, exit {status}:", *wrong[:40]]))


@contextlib.contextmanager
def _copied(dest: Path) -> Iterator[sqlite3.Connection]:
    # SQLite must not write to the examined files, and a write-ahead log belongs to them.
    with tempfile.TemporaryDirectory() as copy:
        for path in (dest / HOME).glob("journal.sqlite*"):
            shutil.copy(path, copy)
        with contextlib.closing(sqlite3.connect(Path(copy) / "journal.sqlite")) as database:
            database.row_factory = sqlite3.Row
            yield database


def _agree(
    dest: Path,
    database: sqlite3.Connection,
    status: int,
    report: Mapping[str, Any] | None,
    expect: Callable[[bool, str], None],
) -> None:
    keys = dict(database.execute("SELECT key, value FROM job").fetchall())
    job = json.loads(keys["job"])
    listed = published = failed = still_open = 0
    for row in database.execute(BATCHES):
        names, marks = _contents(row)
        rows = database.execute("SELECT idx FROM failure WHERE seq = ?", (row["seq"],))
        failures = [index for (index,) in rows]
        listed, published, failed = listed + len(names), published + len(marks), failed + len(failures)
        still_open += not row["done"]
        if row["done"]:
            ends = sorted([*marks, *failures])
            expect(ends == list(range(len(names))), f"batch {row['seq']}: {len(ends)} ends of {len(names)}")
        for index, mark in marks.items() if job["store"] == "files" else ():
            found = _file(dest / _place(names[index], job["layout"]))
            expect(found == mark, f"{names[index]!r}: the journal has {mark}, the disk {found}")
    if status in (0, 1):
        expect(bool(keys["ended"]) and not still_open, f"ended, with {still_open} open batches")
        wrong = failed + (report or {}).get("doubtful", 0)
        expect(status == int(wrong > 0), f"{failed} failed")
        left = [path.name for path in dest.rglob(".downloader-*")]
        expect(not left, f"left behind: {left}")
    if report:
        said = {key: report[key] for key in ("listed", "failed", "exit_code")}
        expect(
            said == {"listed": listed, "failed": failed, "exit_code": status},
            f"the report says {said}; {listed} listed, {failed} failed",
        )
        if status in (0, 1):
            stored = report["stored"] + report["skipped"]
            expect(stored == published, f"the report says {stored} stored, the journal {published}")


def _contents(row: Any) -> tuple[list[str], dict[int, Stored]]:
    """Return a batch's names, and what is published of it by index."""
    names = msgspec.msgpack.decode(zlib.decompress(row["names"]), type=list[str])
    raw = zlib.decompress(row["marks"]) if row["marks"] else b""
    return names, ItemStates.of(raw, row["count"]).published if raw else {}


def _place(name: str, layout: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=2).hexdigest()
    return f"{digest[:2]}/{digest[2:]}/{name}" if layout == "hashed" else name


def _file(path: Path) -> Stored | None:
    if path.is_symlink() or not path.is_file():
        return None
    content = path.read_bytes()
    return Stored(len(content), zlib.crc32(content))


class _Inspection:
    def __init__(self, dest: Path, truth: Truth, foreign: Collection[str]) -> None:
        self.dest = dest
        self.truth = truth
        self.foreign = set(foreign)
        self.wrong: list[str] = []
        self.on_disk: dict[str, Stored] = {}
        self.listed: list[str] = []
        self.published: set[str] = set()
        self.failures: dict[str, str] = {}
        self.open_batches = 0
        self.ended = False

    def expect(self, holds: bool, text: str) -> None:
        if not holds:
            self.wrong.append(text)

    def checked(self) -> Checked:
        return Checked(len(self.listed), len(self.published), len(self.failures), self.open_batches)

    def disk(self) -> None:
        """Check that whatever has a name is whole, right, and one of the served files."""
        for path in sorted(self.dest.iterdir()) if self.dest.exists() else ():
            name = path.name
            if name == HOME or name in self.foreign:
                continue
            if path.is_symlink() or not path.is_file() or self.truth.index(name) is None:
                self.wrong.append(f"{name}: not one of the served files")
                continue
            content = path.read_bytes()
            right = self.truth.content(name)
            if content != right:
                kind = "partial" if right.startswith(content) else "wrong"
                self.wrong.append(f"{name}: {kind}, {len(content)} of {len(right)} bytes")
            self.on_disk[name] = Stored(len(content), zlib.crc32(content))

    def journal(self, database: sqlite3.Connection, interrupted: bool) -> None:
        integrity = database.execute("PRAGMA integrity_check").fetchone()[0]
        self.expect(integrity == "ok", f"journal: {integrity}")
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        if interrupted and "batch" not in tables:
            return
        keys = dict(database.execute("SELECT key, value FROM job").fetchall())
        self.ended = keys.get("ended", "").startswith("end ")
        for number, row in enumerate(database.execute(BATCHES)):
            self.expect(row["seq"] == number, f"batch {row['seq']} where {number} was due")
            rows = database.execute("SELECT * FROM failure WHERE seq = ?", (row["seq"],))
            self.batch(row, rows.fetchall())
        orphans = "SELECT count(*) FROM failure WHERE seq NOT IN (SELECT seq FROM batch)"
        self.expect(not database.execute(orphans).fetchone()[0], "failures of no batch")

    def batch(self, row: Any, failures: list[Any]) -> None:
        seq, count, done = row["seq"], row["count"], row["done"]
        names, marks = _contents(row)
        self.expect(len(names) == count, f"batch {seq}: {len(names)} names, count {count}")
        due = [self.truth.name(len(self.listed) + i) for i in range(count)]
        self.expect(names == due, f"batch {seq}: not the names that follow those before it")
        self.listed += names
        # The position where the next run reads on: exactly behind the last row, or names would be lost.
        behind = self.position(row["cursor"])
        self.expect(
            behind == len(self.listed), f"batch {seq}: its cursor is {behind}, listed {len(self.listed)}"
        )
        for index, mark in marks.items():
            found = self.on_disk.get(names[index])
            self.expect(
                found == mark, f"batch {seq}: the journal has {names[index]} as {mark}, disk: {found}"
            )
        self.published |= {names[index] for index in marks}
        indices = [failure["idx"] for failure in failures]
        self.failures |= {names[failure["idx"]]: failure["code"] for failure in failures}
        if not done:
            self.open_batches += 1
            self.expect(not failures, f"batch {seq}: open, with {len(failures)} failures")
            return
        self.expect(
            sorted([*marks, *indices]) == list(range(count)),
            f"batch {seq}: {len(marks)} stored and {len(indices)} failed of {count}",
        )
        size = sum(mark.size for mark in marks.values())
        self.expect(
            (row["stored"], row["failed"], row["bytes"]) == (len(marks), len(indices), size),
            f"batch {seq}: counts {row['stored']}, {row['failed']}, {row['bytes']} do not agree with it",
        )

    def position(self, cursor: bytes) -> int | None:
        """Return how many names come before ``cursor`` in the listing."""
        taken: int
        marker, taken, _, ended = msgspec.msgpack.decode(cursor)[:4]
        if ended:
            return self.truth.files
        if not marker:
            return taken
        match = re.fullmatch(r"from=([0-9]+)&page%[0-9]+\+", marker)
        return int(match[1]) + taken if match else None

    def complete(self, failed: dict[str, str], limited: bool) -> None:
        total = self.truth.files
        self.expect(self.ended or limited, "the journal does not say that the source was read")
        self.expect(not self.open_batches, f"{self.open_batches} batches are open")
        self.expect(len(self.listed) == total, f"{len(self.listed)} of {total} names are listed")
        both = self.published & self.failures.keys()
        self.expect(not both, f"stored and failed: {sorted(both)[:5]}")
        self.expect(self.failures == failed, f"failed: {self.failures}, expected {failed}")
        lost = set(self.listed) - self.published - self.failures.keys()
        self.expect(not lost, f"{len(lost)} items have no end: {sorted(lost)[:5]}")
        extra = self.on_disk.keys() - self.published
        self.expect(not extra, f"{len(extra)} files that the journal has not: {sorted(extra)[:5]}")
        every = {path.name for path in (self.dest / HOME).iterdir()}
        own = {name for name in every if not name.startswith(RECORDS)}
        self.expect(own <= OWN_FILES, f"left in {HOME}: {sorted(own - OWN_FILES)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dest", type=Path)
    parser.add_argument("--files", type=int, required=True)
    parser.add_argument("--size", default="100", metavar="N|MIN-MAX")
    parser.add_argument("--interrupted", action="store_true")
    given = parser.parse_args()
    least, _, most = given.size.partition("-")
    truth = Truth(given.files, int(least), int(most or least))
    try:
        checked = check(given.dest, truth, interrupted=given.interrupted)
    except Wrong as wrong:
        sys.stdout.write(f"{wrong}\n")
        return 1
    sys.stdout.write(f"right: {checked}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
