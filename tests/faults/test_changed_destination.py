"""What is in DEST was changed, crafted, moved or removed by somebody else, between runs or during one."""

from __future__ import annotations

import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from bounded_runs import bounded, check
from harness import AFTER_IMPORT, DevServer, Job, serving
from servers import Answer, Request, Server, Until, ok

from downloader.core.extras import ZSTD
from downloader.core.item_states import IN_FLIGHT
from downloader.core.ownership import Rules
from downloader.errors import DestinationError
from downloader.sinks.directory import FilesSink
from downloader.storage import ledger

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COUNT = 12
GONE = "was removed, moved or replaced while the run was at work"


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=COUNT) as server:
        yield server


def shards(server: DevServer, dest: Path, *store: object) -> tuple[object, ...]:
    """Store the files in shards of five, and return the arguments."""
    argv = (server.url, "-o", dest, "--workers", 1, "--shard-files", 5, "--store", *store)
    assert bounded(*argv).code == 0
    return argv


def test_byte_that_is_no_text_in_metadata_is_a_damaged_sample(server: DevServer, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    argv = shards(server, dest, "tar")
    shard = dest / "00001.tar"
    content = bytearray(shard.read_bytes())
    content[content.index(b'"sha256":"') + 15] ^= 0x80
    shard.write_bytes(content)
    seen = bounded("verify", dest)
    check("text", "KEY.json", seen)
    assert (seen.code, "7 of 12 files agree" in seen.out) == (1, True), seen
    assert bounded(*argv).code == 0
    assert bounded("verify", dest).code == 0


@pytest.mark.parametrize("count", [5, 10])
@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_shards_are_not_published_in_what_takes_the_place_of_dest(
    store: str, count: int, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    """Else the journal has what is not there once DEST is put back, as the message says."""
    dest, aside, source = tmp_path / "d", tmp_path / "aside", tmp_path / "l.txt"
    asked, opened = Event(), Event()

    def answer(request: Request) -> Answer:
        if request.target != f"/{count - 1}":
            return ok(b"x")
        asked.set()
        return [Until(opened), *ok(b"x")]

    with Server(default=answer) as server:
        source.write_text("".join(f"{server.url}/{number}\n" for number in range(count)))
        argv = (source, "-o", dest, "--journal", tmp_path / "j", "--shard-files", 5, "--store", store)
        job = start(*argv, "--workers", 1)
        assert asked.wait(60)
        if count > 5:
            job.until((dest / f"00000.{store}").exists)
        dest.rename(aside)
        dest.mkdir()
        opened.set()
        assert (job.wait(), f"{dest} {GONE}" in job.err) == (4, True), job.err
        assert list(dest.iterdir()) == []
        dest.rmdir()
        aside.rename(dest)
        done = run_downloader(*argv)
    assert done.returncode == 0, done.stderr
    done = run_downloader("verify", dest, "--journal", tmp_path / "j")
    assert (done.returncode, done.stdout) == (0, f"{count} of {count} files agree with the journal\n")


def test_worker_that_begins_when_dest_was_replaced_stores_nothing(tmp_path: Path) -> None:
    dest = tmp_path / "d"
    dest.mkdir()
    found = dest.stat()
    rules = Rules(root=(found.st_dev, found.st_ino))
    FilesSink(dest, "flat", rules).close()
    dest.rename(tmp_path / "aside")
    dest.mkdir()
    with pytest.raises(DestinationError, match=f"{dest} {GONE}"):
        FilesSink(dest, "flat", rules)


# A table that takes gigabytes when it is read, in a few kilobytes.


def bomb(path: Path, column: str) -> None:
    """Make all values of a column the same, of 128 MiB, as a dictionary has it."""
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(path)
    at = table.column_names.index(column)
    kind = pyarrow.binary() if column == "bytes" else pyarrow.string()
    large = pyarrow.array([b"A" * (128 << 20)], kind)
    indices = pyarrow.array([0] * len(table), pyarrow.int32())
    values = pyarrow.DictionaryArray.from_arrays(indices, large)
    table = table.set_column(at, column, values)
    writer = parquet.ParquetWriter(
        path, table.schema, compression="zstd", store_schema=False, write_statistics=False
    )
    with writer:
        writer.write_table(table)
    assert path.stat().st_size < 100_000


def edited(path: Path, column: str, value: str) -> None:
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(path)
    table = table.set_column(table.column_names.index(column), column, pyarrow.array([value] * len(table)))
    parquet.write_table(table, path)


def rewritten(path: Path) -> None:
    """Write the same table again, as others write it: with dictionaries."""
    from pyarrow import parquet

    parquet.write_table(parquet.read_table(path), path)


def test_rows_that_were_not_published_are_not_read(server: DevServer, tmp_path: Path) -> None:
    dest, manifest = tmp_path / "d", tmp_path / "m.jsonl"
    argv = (*shards(server, dest, "tar"), "--manifest", manifest)
    bomb(dest / "00000.parquet", "etag")
    edited(dest / "00001.parquet", "final_url", "http://evil.example/")
    done = bounded(*argv)
    check("crafted", "rows", done)
    assert "00000.parquet and 1 more in DEST is not what was published" in done.err
    text = manifest.read_text()
    assert (done.code, text.count("\n"), "evil" in text) == (0, COUNT, False), done
    # Nobody vouches for it: it is read, up to a bound.
    shutil.rmtree(dest / ".downloader" / "published")
    done = bounded(*argv)
    check("crafted", "rows without records", done)
    assert (done.code, "00000.parquet" in done.err) == (0, True), done


def test_crafted_parquet_shard_is_not_opened(server: DevServer, tmp_path: Path) -> None:
    dest, unknown = tmp_path / "d", tmp_path / "unknown"
    argv = shards(server, dest, "parquet")
    bomb(dest / "00000.parquet", "bytes")
    bomb(dest / "00001_items.parquet", "etag")
    rewritten(dest / "00001.parquet")
    seen = bounded("verify", dest)
    check("crafted", "shard", seen)
    assert (seen.code, "2 of 12 files agree" in seen.out) == (1, True), seen
    assert bounded(*argv).code == 0
    # Nobody vouches for it.
    shards(server, unknown, "parquet")
    bomb(unknown / "00000.parquet", "bytes")
    rewritten(unknown / "00001.parquet")
    shutil.rmtree(unknown / ".downloader" / "published")
    for path in unknown.glob("*_stats.json"):
        path.unlink()
    seen = bounded("verify", unknown)
    check("crafted", "shard without a record", seen)
    assert (seen.code, "0 of 12 files agree" in seen.out) == (1, True), seen
    assert "00000_stats.json: missing" in seen.out


@pytest.mark.parametrize("compression", ["none", "zst"])
def test_shard_without_end_is_not_read_to_it(compression: str, server: DevServer, tmp_path: Path) -> None:
    """One that is longer than what was published, or of which more comes out: hours, read to the end."""
    dest = tmp_path / "d"
    shards(server, dest, "tar", "--shard-compression", compression, "--shard-size", "1M")
    if compression == "none":
        os.truncate(dest / "00000.tar", 1 << 42)
        (dest / "00001-1.tar").touch()
        os.truncate(dest / "00001-1.tar", 1 << 42)  # of nobody
    else:
        packed = import_module(ZSTD).compress(bytes(64 << 20))
        (dest / "00000.tar.zst").write_bytes(packed * 2000)
        # Else no more would be read than was published.
        shutil.rmtree(dest / ".downloader" / "published")
        (dest / "00000_stats.json").unlink()
    seen = bounded("verify", dest)
    check("endless", compression, seen)
    assert seen.code == 1
    assert "7 of 12" in seen.out, seen
    assert compression != "none" or "00001-1.tar: not a file of this shard; remove it" in seen.out


def test_verify_follows_no_link_below_the_destination(server: DevServer, tmp_path: Path) -> None:
    dest, real = tmp_path / "real", tmp_path / "outside"
    argv = (server.url, "-o", dest, "--layout", "mirror", "--workers", 1)
    assert bounded(*argv).code == 0
    (host,) = (path for path in dest.iterdir() if path.name != ".downloader")
    host.rename(real)
    host.symlink_to(real, target_is_directory=True)
    seen = bounded("verify", dest)
    check("linked", "directory", seen)
    assert (seen.code, f"0 of {COUNT} files agree" in seen.out) == (1, True), seen
    host.unlink()
    real.rename(host)
    assert bounded(*argv).code == 0
    (tmp_path / "link").symlink_to(dest, target_is_directory=True)
    assert bounded("verify", tmp_path / "link").code == 0, "DEST itself may be a link"


# During a run.


def move(dest: Path) -> None:
    dest.rename(dest.with_name("elsewhere"))


def replace(dest: Path) -> None:
    move(dest)
    dest.mkdir()


def remove_home(dest: Path) -> None:
    (dest / ".downloader").rename(dest.with_name("home"))


def remove_journal(dest: Path) -> None:
    (dest / ".downloader" / "journal.sqlite").unlink()


def cut_log(dest: Path) -> None:
    os.truncate(dest / ".downloader" / "journal.sqlite-wal", 0)


def remove_log(dest: Path) -> None:
    (dest / ".downloader" / "journal.sqlite-wal").unlink()


def move_and_link(dest: Path) -> None:
    """Nobody else's: another disk got the files, and the path leads there."""
    dest.with_name("link").symlink_to(dest.with_name("elsewhere"), target_is_directory=True)
    move(dest)
    dest.with_name("link").rename(dest)


@pytest.mark.parametrize(
    ("how", "store"),
    [
        (move, "files"),
        (replace, "tar"),
        (remove_home, "files"),
        (remove_journal, "tar"),
        (cut_log, "files"),
        (remove_log, "tar"),
        (move_and_link, "files"),
    ],
)
def test_destination_that_goes_away_during_a_run(
    how: Callable[[Path], None],
    store: str,
    dev_server: Callable[..., DevServer],
    start: Callable[..., Job],
    tmp_path: Path,
) -> None:
    server, dest = dev_server(files=600, delay="0-50ms", page=100), tmp_path / "dest"
    apart = ("--journal", tmp_path / "journal") if how is replace else ()
    job = start(server.url, "-o", dest, "--workers", 2, "--store", store, "--rate", 400, *apart)
    server.until(lambda counters: counters["gets"] > 50)
    how(dest)
    code = job.wait(60)
    if how is move_and_link:
        assert (code, "complete" in job.out) == (0, True), job.err
        return
    assert (code, GONE in job.err, "not complete" in job.out) == (4, True, True), job.out + job.err
    errors = [line for line in job.err.splitlines() if "error" in line]
    assert len(errors) == 1, job.err


def test_ledger_that_is_changed_during_a_run_is_not_believed(
    dev_server: Callable[..., DevServer], start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    """Else the run says 0, and the journal does not agree with itself: no later command can use it."""
    server, dest = dev_server(files=300, delay="0-50ms"), tmp_path / "dest"
    argv = (server.url, "-o", dest, "--workers", 1)
    job = start(*argv, "--rate", 100)
    server.until(lambda counters: counters["gets"] > 50)
    with open(dest / ".downloader" / "ledger-0", "r+b") as file:
        _, items, slots, _ = ledger._BEGIN.unpack(file.read(ledger._BEGIN.size))
        for number in range(slots):
            start_of_slot = ledger._BEGIN.size + number * ledger._slot_bytes(items)
            file.seek(start_of_slot)
            _, count = memoryview(file.read(ledger._HEADER)).cast("Q")
            states = memoryview(file.read(8 * count)).cast("q").tolist()
            stored = [index for index, state in enumerate(states) if state > IN_FLIGHT]
            if stored and len(stored) < count:  # the batch that is being fetched
                file.seek(start_of_slot + ledger._HEADER + 8 * stored[0])
                file.write((states[stored[0]] + 1).to_bytes(8, "little"))
    assert (job.wait(60), "changed by another program" in job.err) == (4, True), job.out + job.err
    assert run_downloader(*argv).returncode == 0
    assert run_downloader("verify", dest).returncode == 0


# The home is moved away by the first child that boots.
BOOTING = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.{module}.main"

    def change(module):
        try:
            os.rename({home!r}, {home!r} + "-moved")
        except OSError:
            pass
"""
)


@pytest.mark.parametrize("module", ["worker", "feeder"])
def test_home_that_goes_away_while_a_child_boots(
    module: str, server: DevServer, run_downloader: Run, tmp_path: Path
) -> None:
    dest = tmp_path / "dest"
    site: Any = tmp_path / "site"
    site.mkdir()
    text = BOOTING.format(module=module, home=str(dest / ".downloader"))
    (site / "sitecustomize.py").write_text(textwrap.dedent(text))
    for store in ("tar", "files"):
        done = run_downloader(
            server.url, "-o", dest, "--store", store, "--workers", 1, env={"PYTHONPATH": str(site)}
        )
        assert (done.returncode, GONE in done.stderr) == (4, True), done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        shutil.rmtree(dest)
