"""Files of the user beside slices: what is kept is never overwritten later, what is replaced is counted."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from checker import ledgers
from ray_nodes import slice_processes
from servers import Server, Until, ok
from slice_parts import ShardPlan, run_attempt
from test_slice_shards import until, verify

from downloader.core.item_states import published
from downloader.core.words import Existing
from downloader.messages import Tally
from downloader.storage.places import foreign_before

EDITED = "mine, edited"


def tally(plan: ShardPlan, name: str) -> Tally:
    """Return the counts of a slice that is done."""
    report = plan.done(name).report
    return Tally(report.stored, report.skipped, report.failed, replaced=report.replaced)


class Kept:
    """A plan of one slice with the items a and b, and a file of the user in DEST that has the name a."""

    def __init__(self, directory: Path, server: Server, text: str, existing: Existing = "keep") -> None:
        self.path, self._scratch = directory / "d" / "a", directory / "s"
        self.path.parent.mkdir()
        self.path.write_text(text)
        # The clock that stamps files moves on every few milliseconds.
        until(lambda: foreign_before(str(self.path.parent)) > self.path.stat().st_ctime_ns)
        self.plan = ShardPlan(self.path.parent, server.url, 10, {"store": "files"}, existing=existing)
        self.last = self.plan.add(["a", "b"], ended=True)

    def run(self) -> Tally:
        """Run the last slice, return its counts."""
        assert self.plan.attempt(self.last, self._scratch).how == "done"
        return tally(self.plan, self.last)

    def run_again(self) -> Tally:
        """Run a slice of what failed, or was found damaged, in the last one."""
        self.last = self.plan.again(self.last).name
        return self.run()

    def edit(self, text: str) -> None:
        """Change the file, and have it found."""
        self.path.write_text(text)
        assert verify(self.path.parent) == (1, 2, 1, ["a"])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(routes={"/get/a": ok(b"a of the server"), "/get/b": ok(b"b")}) as running:
        yield running


@pytest.mark.parametrize("text", ["mine", "a of the server"])
def test_kept_file_is_edited(server: Server, tmp_path: Path, text: str) -> None:
    """Also one that had the bytes of the item when it was kept; and a second time."""
    kept = Kept(tmp_path, server, text)
    assert kept.run() == Tally(stored=1, skipped=1)
    for edited in (EDITED, f"{EDITED} again"):
        kept.edit(edited)
        assert kept.run_again() == Tally(skipped=1)
        assert kept.path.read_text() == edited
        assert verify(kept.path.parent) == (0, 2, 2, [])


def test_existing_decides_about_a_kept_file_that_was_edited(server: Server, tmp_path: Path) -> None:
    """It may be another one each time; what has replaced the file is the item's own."""
    kept = Kept(tmp_path, server, "a of the server")
    kept.run()
    kept.edit(EDITED)
    kept.plan.existing = "fail"
    assert kept.run_again() == Tally(failed=1)
    assert kept.plan.done(kept.last).report.failed_by_error == {"file-exists": 1}
    assert kept.path.read_text() == EDITED
    kept.plan.existing = "replace"
    assert kept.run_again() == Tally(stored=1, replaced=1)
    kept.plan.existing = "keep"
    kept.edit("?")
    assert kept.run_again() == Tally(stored=1)
    assert kept.path.read_text() == "a of the server"


def test_kept_file_that_was_removed_is_fetched_and_is_the_items_own(server: Server, tmp_path: Path) -> None:
    kept = Kept(tmp_path, server, "mine")
    kept.run()
    kept.path.unlink()
    assert verify(kept.path.parent) == (1, 2, 1, ["a"])
    assert kept.run_again() == Tally(stored=1)
    kept.edit("?")
    assert kept.run_again() == Tally(stored=1)
    assert kept.path.read_text() == "a of the server"


@contextmanager
def killed(plan: ShardPlan, name: str, scratch: Path, reached: Event) -> Iterator[None]:
    """Kill an attempt at a slice once ``reached`` is set; wait until nothing of it is left."""
    argv = (name, str(plan.dest), str(scratch), plan.slices, "here")
    process = multiprocessing.get_context("spawn").Process(target=run_attempt, args=argv)
    process.start()
    assert reached.wait(60)
    yield
    process.kill()
    process.join(60)
    until(lambda: not slice_processes(plan.dest))


def recorded(scratch: Path) -> bool:
    """Return whether a ledger of an attempt at a slice says that its first item is published.

    A kill before that leaves a file which is neither known to be the job's own nor the user's.
    """
    homes = {path.parent.parent for path in scratch.rglob("ledger-*")}
    return any(
        item.index == 0
        for home in homes
        for _, states in ledgers(home)
        for item in published(states.packed())
    )


@pytest.mark.parametrize(
    ("existing", "scratch", "expected", "text"),
    [
        ("keep", "s", Tally(stored=1, skipped=1), EDITED),
        ("replace", "s", Tally(stored=2), "a of the server"),  # its own, which it finds damaged
        ("keep", "of another node", Tally(stored=1, failed=1), EDITED),
        ("replace", "of another node", Tally(stored=1, failed=1), EDITED),
    ],
)
def test_attempt_dies_that_has_met_a_file_of_the_user(
    tmp_path: Path, existing: Existing, scratch: str, expected: Tally, text: str
) -> None:
    """The file is edited before the next attempt; one without the journal does not know whose it is."""
    reached, gate = Event(), Event()

    def held(request: Any) -> list[Any]:
        reached.set()
        return [Until(gate), *ok(b"b")]

    with Server(routes={"/get/a": ok(b"a of the server"), "/get/b": held}) as server:
        kept = Kept(tmp_path, server, "mine", existing)
        met = "mine" if existing == "keep" else "a of the server"
        with killed(kept.plan, kept.last, tmp_path / "s", reached):
            until(lambda: kept.path.read_text() == met)
        kept.path.write_text(EDITED)
        gate.set()
        assert kept.plan.attempt(kept.last, tmp_path / scratch).how == "done"
        assert tally(kept.plan, kept.last) == expected
        assert kept.path.read_text() == text
    failed = {"name-taken": 1} if expected.failed else {}
    assert kept.plan.done(kept.last).report.failed_by_error == failed
