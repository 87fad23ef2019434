"""What somebody else has put into the place of a file of the tool's own.

A job of each kind is interrupted; then each file that it has left in ``.downloader``, and each that it is
going to make, is replaced by something else in a copy of the destination: a link, a pipe, a directory,
another user's file, noise, 10 GB of zeros. ``status``, ``verify`` and the same command again: nothing
changes outside, nothing waits for ever, memory is bounded, and an error is one line that names the file.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from bounded_runs import Done, Outside, bounded, check
from bucket_server import bucket_server, set_credentials
from harness import DevServer, Job, command, serving
from planting import PLANTS, plant

FILES = 120


class Kind(NamedTuple):
    """A kind of job: its options, and files that it makes while it runs, in DEST."""

    options: tuple[object, ...]
    made: tuple[str, ...]


_SHARDS = ("--shard-files", 20, "--workers", 2, "--connections", 2)
KINDS = {
    "files": Kind(
        ("--workers", 2, "--connections", 2, "--on-duplicate", "number", "--hash", "sha256"),
        (
            ".downloader/journal.sqlite-journal",
            ".downloader/records-index.sqlite",
            ".downloader/ledger-0",
            ".downloader/ledger-9",
        ),
    ),
    "tar": Kind(
        (*_SHARDS, "--store", "tar"),
        (
            ".downloader-shards.json",
            ".downloader-sizes.json",
            ".downloader-00005_stats.json",
            ".downloader-00005.parquet",
            ".downloader/indexed",
            ".downloader/.indexed.new",
            ".downloader/shards/.00005.sealed.new",
            ".downloader/shards/00000.part.new",
        ),
    ),
    "bucket": Kind(
        (*_SHARDS, "--store", "tar"),
        (
            ".downloader/publishing-00005_stats.json",
            ".downloader/publishing-00005.parquet",
            ".downloader/.downloader-shards.json",
            ".downloader/shards.json",
            ".downloader/stats",
            ".downloader/stats/00005_stats.json",
        ),
    ),
    "parquet": Kind(
        (*_SHARDS, "--store", "parquet"),
        (".downloader-00005.parquet", ".downloader-00005_items.parquet"),
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=FILES, size="2000-90000", delay="0-10ms") as server:
        yield server


class Template(NamedTuple):
    """An interrupted job: the directory with its home, and the command that goes on with it in a copy."""

    dest: Path
    argv: Callable[[Path], tuple[object, ...]]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server of buckets, for those that ask for it."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as opened:
        set_credentials(patch)
        yield opened.enter_context(bucket_server("moto", tmp_path_factory.mktemp("buckets"))).url


@pytest.fixture(scope="module")
def templates(
    server: DevServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str], Template]:
    made: dict[str, Template] = {}
    place = tmp_path_factory.mktemp("templates")

    def template(kind: str) -> Template:
        if kind not in made:
            url = request.getfixturevalue("bucket") if kind == "bucket" else ""
            made[kind] = _interrupted(kind, server, place, url)
        return made[kind]

    return template


def _interrupted(kind: str, server: DevServer, place: Path, bucket: str) -> Template:
    source = place / f"{kind}.txt"
    source.write_text("".join(f"{server.url}/get/file-{number:010d}\n" for number in range(FILES)))

    def argv(dest: Path) -> tuple[object, ...]:
        where: tuple[object, ...] = ("-o", dest)
        if bucket:
            where = ("-o", "s3://shards/walk", "--endpoint-url", bucket, "--region", "us-east-1")
            where = (*where, "--journal", dest)
        return (source, *KINDS[kind].options, *where)

    dest = place / kind
    before = server.stats()["gets"]
    job = Job(*command(*argv(dest)))
    try:
        job.until(lambda: server.stats()["gets"] - before > FILES * 2 // 3)
        job.kill()
        job.wait()
        job.alone()
    finally:
        job.close()
    return Template(dest, argv)


def victims(template: Template, kind: str) -> list[str]:
    """Return what is replaced: all files in the home, the home itself, directories in it, names to come."""
    home = template.dest / ".downloader"
    there = [str(path.relative_to(template.dest)) for path in sorted(home.rglob("*"))]
    return [".downloader", *there, *KINDS[kind].made]


def walk(
    victim: str, what: str, template: Template, place: Path, codes: tuple[int | None, ...] = (0, 0, 0)
) -> list[Done]:
    """Plant one thing in a copy of the job, and let every command meet it but those of the code None."""
    dest = place / "dest"
    shutil.copytree(template.dest, dest)
    outside = Outside(place / "outside")
    if not plant(what, dest / victim, outside):
        return []
    found = []
    commands = (("status", dest), ("verify", dest), template.argv(dest))
    for argv in (argv for argv, code in zip(commands, codes, strict=True) if code is not None):
        done = bounded(*argv)
        check(what, victim, done)
        assert outside.now() == outside.before, f"{victim} as {what}, {argv[0]}: {done}"
        found.append(done)
    return found


CASES = [
    # What is planted where, and what the three commands say: codes (None: not run), and a part of the last
    # message.
    ("files", ".downloader", "directory-link", (2, 2, 2), "is a symbolic link, which is not followed"),
    ("files", ".downloader", "foreign", (4, 2, 2), "belongs to another user (nobody)"),
    ("files", ".downloader", "writable", (2, 2, 2), "can be written by every user, so what is in it"),
    ("files", ".downloader/lock", "link", (4, 4, 4), "/lock is a symbolic link, not a file"),
    ("files", ".downloader/name-key", "pipe", (None, None, 4), "/name-key is a named pipe, not a file"),
    ("files", ".downloader/journal.sqlite", "hard-link", (4, 4, 4), "has another name, too (a hard link)"),
    ("files", ".downloader/ledger-0", "zeros", (4, 4, 4), "/ledger-0 is larger than any such file"),
    ("files", ".downloader/names.sqlite", "new-link", (None, None, 4), "/names.sqlite is a symbolic link"),
    ("tar", ".downloader/shards/00000.part", "pipe", (4, None, 4), "00000.part is a named pipe"),
    ("tar", ".downloader-shards.json", "link", (None, None, 0), ""),
    ("tar", ".downloader-00005_stats.json", "directory", (None, None, 4), "is a directory, not a file"),
    ("parquet", ".downloader-00005.parquet", "new-link", (None, None, 0), ""),
]


@pytest.mark.parametrize(("kind", "victim", "what", "codes", "text"), CASES)
def test_what_is_planted_is_refused(
    kind: str,
    victim: str,
    what: str,
    codes: tuple[int | None, ...],
    text: str,
    templates: Callable[[str], Template],
    tmp_path: Path,
) -> None:
    template = templates(kind)
    if victim.endswith(".part") and not (template.dest / victim).exists():
        pytest.skip("the shard was finished when the run was killed")
    done = walk(victim, what, template, tmp_path, codes)
    if not done:
        pytest.skip("not possible here")
    assert [each.code for each in done] == [code for code in codes if code is not None], done
    assert text in done[-1].err


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_replaced(
    kind: str, what: str, templates: Callable[[str], Template], tmp_path: Path
) -> None:
    template = templates(kind)
    for number, victim in enumerate(victims(template, kind)):
        place = tmp_path / str(number)
        place.mkdir()
        walk(victim, what, template, place)
        shutil.rmtree(place)
