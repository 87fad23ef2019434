"""A plan, a staging and a scratch directory that somebody else has made or changed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bounded_runs import Outside, bounded, check
from harness import DevServer, run, serving
from planting import PLANTS, plant
from slice_parts import DIGEST, ShardPlan

from downloader.cluster.node.scratch import scratch_of
from downloader.errors import ConfigError, DownloaderError
from downloader.files.directory import UnsafeFile

NAMES = [f"file-{number:010d}" for number in range(6)]


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=10) as server:
        yield server


def planned(dest: Path, server: DevServer, store: str = "tar") -> ShardPlan:
    """Run the one slice of a job; its shards are where the attempt has published them."""
    plan = ShardPlan(dest, server.url, 3, {"store": store})
    plan.add(NAMES, ended=True)
    assert plan.attempt("00000000", dest.parent / "scratch").how == "done"
    return plan


def change(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def driven(plan: ShardPlan) -> None:
    """Read the plan and do what a driver does with it."""
    plan.directory.read()
    plan.directory.slices()
    plan.drive()


def elsewhere(path: Path, name: str) -> None:
    """Give the first file with samples of a record the name ``name``."""
    record = json.loads(path.read_text())
    record["shards"][0]["files"][0]["name"] = name
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ("shard", "is not the name of a shard"),
        ("other", "is not the name of a shard"),
        ("staging", "is not a name in a plan"),
        ("stored", "is not a name in a plan"),
        ("items", "is not a name in a plan"),
        ("covers", "is not a name in a plan"),
        ("id", "is not a name in a plan"),
    ],
)
def test_names_in_a_plan_are_checked(changed: str, text: str, server: DevServer, tmp_path: Path) -> None:
    plan = planned(tmp_path / "d", server)
    outside = Outside(tmp_path / "outside")
    files = tmp_path / "d/.downloader/cluster"
    done, slice_ = files / "done/00000000.json", files / "slices/00000000.json"
    up = f"../../../../{outside.root.name}/precious"
    if changed == "shard":
        elsewhere(done, up)
    elif changed == "other":
        record = json.loads(done.read_text())
        record["shards"][0]["others"][0]["name"] = up
        done.write_text(json.dumps(record))
    elif changed in ("staging", "stored"):
        change(done, **{changed: up})
    elif changed == "id":
        change(files / "plan.json", id=up)
    else:
        change(slice_, **{changed: [up] if changed == "covers" else up})
    outside.before = outside.now()
    with pytest.raises(DownloaderError, match=text):
        driven(plan)
    verified = run("verify", tmp_path / "d")
    assert verified.returncode == 4, verified
    assert text in verified.stderr
    assert outside.now() == outside.before


def test_names_of_a_staging_are_checked(server: DevServer, tmp_path: Path) -> None:
    """That of the note in the scratch directory, and those of the results of a slice."""
    plan = planned(tmp_path / "d", server)
    (tmp_path / "d/.downloader/cluster/done/00000000.json").unlink()
    scratch = tmp_path / "scratch" / DIGEST / "00000000"
    scratch.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (scratch / "staging").write_text("../../../outside")
    assert plan.attempt("00000000", tmp_path / "scratch").how == "done"
    assert os.listdir(tmp_path / "outside") == []


def test_a_scratch_directory_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "base").mkdir()
    (tmp_path / "base/plan").symlink_to(tmp_path / "there")
    with (
        pytest.raises(ConfigError, match="symbolic link"),
        scratch_of(f"{tmp_path}/base", "plan", "s", "a"),
    ):
        pass
    (tmp_path / "base/plan").unlink()
    (tmp_path / "base/plan").mkdir()
    (tmp_path / "base/plan").chmod(0o777)
    with pytest.raises(ConfigError, match="every user"), scratch_of(f"{tmp_path}/base", "plan", "s", "a"):
        pass
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"mass-downloader-{os.getuid()}"
    own.symlink_to(tmp_path / "there")
    with pytest.raises(ConfigError, match="--scratch"), scratch_of("", "plan", "s", "a"):
        pass
    own.unlink()
    with scratch_of("", "plan", "s", "a") as scratch:
        assert scratch.path == own / "plan/s"
        (scratch.path / "link").symlink_to(tmp_path / "there")
        (tmp_path / "there/kept").write_bytes(b"kept")
        scratch.clear()
    assert os.listdir(own / "plan/s") == ["attempt.lock"]
    assert os.listdir(tmp_path / "there") == ["kept"]


CASES = [
    ("plan.json", "pipe"),
    ("slices/00000000.items", "link"),
    ("done", "directory-link"),
    ("done/00000000.json", "zeros"),
    ("stored/*", "pipe"),
    ("../attempts", "directory-link"),
]


def walk(victim: Path, what: str, dest: Path, outside: Outside) -> None:
    if not plant(what, victim, outside):
        return
    for name in ("status", "verify"):
        done = bounded(name, dest)
        check(what, str(victim), done)
        assert outside.now() == outside.before, f"{victim} as {what}, {name}: {done}"


@pytest.mark.parametrize(("victim", "what"), CASES)
def test_a_file_of_the_plan_is_replaced(victim: str, what: str, server: DevServer, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    planned(dest, server)
    base = dest / ".downloader/cluster"
    walk(next(base.glob(victim), dest / ".downloader/attempts"), what, dest, Outside(tmp_path / "outside"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", PLANTS)
def test_every_file_of_the_plan_is_replaced(what: str, server: DevServer, tmp_path: Path) -> None:
    planned(tmp_path / "d", server)
    home = tmp_path / "d/.downloader"
    for number, path in enumerate(sorted(home.rglob("*"))):
        place = tmp_path / str(number)
        place.mkdir()
        # A plan says where DEST is: the job is moved there, and back.
        shutil.copytree(tmp_path / "d", place / "kept")
        walk(path, what, tmp_path / "d", Outside(place / "outside"))
        shutil.rmtree(tmp_path / "d")
        (place / "kept").rename(tmp_path / "d")
        shutil.rmtree(place)


def test_an_attempt_meets_a_link_in_its_scratch(server: DevServer, tmp_path: Path) -> None:
    plan = ShardPlan(tmp_path / "d", server.url, 3, {})
    plan.add(NAMES, ended=True)
    scratch = tmp_path / "scratch" / DIGEST / "00000000"
    scratch.mkdir(parents=True)
    outside = Outside(tmp_path / "outside")
    (scratch / "attempt.lock").symlink_to(outside.root / "precious")
    with pytest.raises(UnsafeFile, match=r"attempt\.lock is a symbolic link"):
        plan.attempt("00000000", tmp_path / "scratch")
    (scratch / "attempt.lock").unlink()
    (scratch / ".downloader").symlink_to(outside.root / "inner")
    assert plan.attempt("00000000", tmp_path / "scratch").how == "failed"
    assert outside.now() == outside.before
