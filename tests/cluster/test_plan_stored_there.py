"""Whether a DEST has what a plan says was stored in it: one that is not mounted is empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import DevServer, serving
from slice_parts import ShardPlan

from downloader.cluster.driver.stored_there import has_all

NAMES = [f"file-{number:010d}" for number in range(6)]


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=10) as server:
        yield server


def stored(dest: Path, server: DevServer, store: str) -> ShardPlan:
    plan = ShardPlan(dest, server.url, 3, {"store": store})
    plan.add(NAMES, ended=True)
    assert plan.attempt("00000000", dest.parent / "scratch").how == "done"
    return plan


def test_all_files_of_the_slices_that_are_done_have_to_be_there(server: DevServer, tmp_path: Path) -> None:
    plan = stored(tmp_path / "d", server, "files")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert has_all(plan.directory, str(tmp_path / "d"))
    assert not has_all(plan.directory, str(empty))
    (tmp_path / "d" / NAMES[5]).unlink()
    assert not has_all(plan.directory, str(tmp_path / "d"))


def test_it_is_not_known_before_a_slice_is_done(server: DevServer, tmp_path: Path) -> None:
    plan = ShardPlan(tmp_path / "d", server.url, 3, {"store": "files"})
    plan.add(NAMES, ended=True)
    assert not has_all(plan.directory, str(tmp_path / "d"))


def test_it_is_not_known_of_samples_in_shards(server: DevServer, tmp_path: Path) -> None:
    plan = stored(tmp_path / "d", server, "tar")
    assert not has_all(plan.directory, str(tmp_path / "d"))
