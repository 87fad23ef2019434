"""A file of the user that a run has kept stays the user's, whatever is done to it later and in between."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from checker import agree
from harness import Job, report_with
from servers import Request, Server, Until, ok, status

from downloader.files.directory import open_home
from downloader.storage.journal import Journal

ONE = ("--workers", 1, "--pipeline", "off", "--connections", 1, "--json")
EDITED = "mine, edited"
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., Job]


def list_of(server: Server, path: Path, *names: str) -> Path:
    path.write_text("url,name\n" + "".join(f"{server.url}/{name},{name}\n" for name in names))
    return path


def kept(dest: Path, text: str) -> None:
    dest.mkdir()
    (dest / "a").write_text(text)


@pytest.mark.parametrize("text", ["mine", "a of the server"])
@pytest.mark.parametrize("then", ["verify", "relist", "verify and relist"])
def test_kept_file_is_edited(run_downloader: Run, tmp_path: Path, text: str, then: str) -> None:
    """Also one that had the bytes of the item when it was kept; and a second time."""
    dest = tmp_path / "d"
    kept(dest, text)
    with Server(routes={"/a": ok(b"a of the server"), "/b": ok(b"b")}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a", "b"), "-o", dest, "--existing", "keep", *ONE)
        report = report_with(run_downloader(*argv))
        assert (report["stored"], report["skipped"]) == (1, 1)
        for edited in (EDITED, f"{EDITED} again"):
            (dest / "a").write_text(edited)
            if "verify" in then:
                assert "damaged: a\n" in run_downloader("verify", dest).stdout
            report = report_with(run_downloader(*argv, *(["--relist"] if "relist" in then else [])))
            assert (report["replaced"], report["failed"]) == (0, 0)
            assert (dest / "a").read_text() == edited
            assert run_downloader("verify", dest).returncode == 0
    agree(dest, 0)


@pytest.mark.parametrize("existing", ["replace", "fail"])
def test_existing_decides_about_a_kept_file_that_was_edited(
    run_downloader: Run, tmp_path: Path, existing: str
) -> None:
    dest = tmp_path / "d"
    kept(dest, "a of the server")
    with Server(routes={"/a": ok(b"a of the server")}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a"), "-o", dest, *ONE)
        assert report_with(run_downloader(*argv, "--existing", "keep"))["skipped"] == 1
        (dest / "a").write_text(EDITED)
        assert run_downloader("verify", dest).returncode == 1
        report = report_with(run_downloader(*argv, "--existing", existing), int(existing == "fail"))
        if existing == "fail":
            assert report["failed_by_error"] == {"file-exists": 1}
            assert (dest / "a").read_text() == EDITED
        else:
            assert (report["stored"], report["replaced"]) == (1, 1)
            assert (dest / "a").read_text() == "a of the server"


def test_kept_file_that_was_removed_is_fetched_and_is_the_items_own(
    run_downloader: Run, tmp_path: Path
) -> None:
    dest = tmp_path / "d"
    kept(dest, "mine")
    with Server(routes={"/a": ok(b"a of the server")}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a"), "-o", dest, "--existing", "keep", *ONE)
        report_with(run_downloader(*argv))
        for damage in (lambda path: path.unlink(), lambda path: path.write_text("?")):
            damage(dest / "a")
            assert run_downloader("verify", dest).returncode == 1
            report = report_with(run_downloader(*argv))
            assert (report["stored"], report["replaced"]) == (1, 0)
            assert (dest / "a").read_text() == "a of the server"


def copied(dest: Path, *, times: bool) -> None:
    """Put a copy of ``dest`` in its place, as after a move to another disk, or from a backup."""
    moved = dest.rename(dest.with_name("moved"))
    how = shutil.copy2 if times else shutil.copyfile
    shutil.copytree(moved, dest, copy_function=how)  # type: ignore[type-var]
    (dest / ".downloader").chmod(0o700)
    shutil.rmtree(moved)


CHANGES: dict[str, Callable[[Path], object]] = {
    "cp -a": lambda dest: copied(dest, times=True),
    "cp -r": lambda dest: copied(dest, times=False),
    "touch": lambda dest: [path.touch() for path in dest.iterdir()],
    "times in seconds": lambda dest: [os.utime(path, (1e9, 1e9)) for path in dest.iterdir()],
}
LONG = b"a" * (3 << 20)  # is compared in a thread


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("existing", ["keep", "fail"])
def test_damaged_file_stays_the_items_own_where_the_destination_is_copied(
    run_downloader: Run, tmp_path: Path, change: str, existing: str
) -> None:
    """After a request that failed, too; of the same size or not, empty, large; not one that was edited."""
    dest = tmp_path / "d"
    bodies = {"a": b"body of a", "b": b"body of b", "c": b"body of c", "long": LONG, "e": b"body of e"}
    bad = {"a": b"XXXX of a", "b": b"XX", "c": b"", "long": b"X" + LONG[1:], "e": b"XXXX of e"}
    routes: dict[str, Any] = {f"/{name}": ok(body) for name, body in bodies.items()}
    with Server(routes=routes) as server:
        argv = (list_of(server, tmp_path / "l.csv", *bodies), "-o", dest, "--existing", existing, *ONE)
        report_with(run_downloader(*argv))
        for name, body in bad.items():
            (dest / name).write_bytes(body)
        assert json.loads(run_downloader("verify", dest, "--json").stdout)["damaged"] == sorted(
            bad, key=[*bodies].index
        )
        CHANGES[change](dest)
        (dest / "e").write_bytes(b"mine of e")
        server.routes["/a"] = status(404)
        report = report_with(run_downloader(*argv), 1)
        assert report["stored"] == 3
        assert {name: (dest / name).read_bytes() for name in "bc"} == {name: bodies[name] for name in "bc"}
        assert (dest / "long").read_bytes() == LONG
        assert json.loads(run_downloader("verify", dest, "--json").stdout)["damaged"] == ["a"]
        CHANGES[change](dest)
        server.routes["/a"] = ok(bodies["a"])
        report = report_with(run_downloader(*argv), int(existing == "fail"))
        assert (report["stored"], report["replaced"]) == (1, 0)
        assert (dest / "a").read_bytes() == bodies["a"]
        assert (dest / "e").read_bytes() == b"mine of e"
        assert report["failed_by_error"] == ({"file-exists": 1} if existing == "fail" else {})
        assert run_downloader("verify", dest).returncode == 0


@pytest.mark.parametrize("change", [None, *CHANGES])
@pytest.mark.parametrize("other_url", [False, True])
@pytest.mark.parametrize("existing", ["keep", "fail", "replace"])
def test_file_that_was_edited_since_verify_is_the_users_at_relist(
    run_downloader: Run, tmp_path: Path, existing: str, other_url: bool, change: str | None
) -> None:
    """What was only damaged is fetched, whatever --existing says; also where its row has another URL."""
    dest, rows = tmp_path / "d", tmp_path / "l.jsonl"
    with Server(default=lambda request: ok(request.target.encode())) as server:

        def write(path: str) -> None:
            rows.write_text("".join(f'{{"url": "{server.url}/{path}{n}", "name": "{n}"}}\n' for n in "abc"))

        write("")
        argv = (rows, "-o", dest, "--existing", existing, *ONE)
        report_with(run_downloader(*argv))
        for name in "ab":
            (dest / name).write_text("damaged")
        run_downloader("verify", dest)
        if change is not None:
            CHANGES[change](dest)
        (dest / "b").write_text("mine")
        if other_url:
            write("new/")
        report = report_with(run_downloader(*argv, "--relist"), int(existing == "fail"))
    path = "/new/" if other_url else "/"
    found = {name: (dest / name).read_text() for name in "abc"}
    assert found == {
        "a": f"{path}a",
        "b": f"{path}b" if existing == "replace" else "mine",
        "c": f"{path}c",
    }
    assert report["replaced"] == (existing == "replace")
    assert report["failed_by_error"] == ({"file-exists": 1} if existing == "fail" else {})


@pytest.mark.parametrize("row", ["as before", "other URL", "other size"])
@pytest.mark.parametrize("edit", [EDITED, "/A", ""])
@pytest.mark.parametrize("existing", ["keep", "fail", "replace"])
def test_stored_file_that_was_edited_after_the_run_is_the_users_at_relist(
    run_downloader: Run, tmp_path: Path, existing: str, edit: str, row: str
) -> None:
    """Also one of the same size; what is kept is not requested. A row that has changed is fetched where its
    file is as it was stored."""
    dest, rows, path, end = tmp_path / "d", tmp_path / "l.jsonl", "/", ""
    with Server(default=lambda request: ok(f"{request.target}{end}".encode())) as server:

        def write(path: str, **more: object) -> None:
            made = ({"url": f"{server.url}{path}{name}", "name": name, **more} for name in "abc")
            rows.write_text("".join(f"{json.dumps(each)}\n" for each in made))

        write("/")
        argv = (rows, "-o", dest, "--existing", existing, *ONE)
        report_with(run_downloader(*argv))
        (dest / "a").write_text(edit)
        (dest / "b").unlink()
        if row == "other URL":
            write(path := "/new/")
        elif row == "other size":
            end = " is longer"
            write(path, size=len(f"/a{end}"))
        before = len(server.requests)
        report = report_with(run_downloader(*argv, "--relist"), int(existing == "fail"))
        asked = [request.target for request in server.requests[before:]]
    assert (f"{path}a" in asked) == (existing == "replace")
    assert {name: (dest / name).read_text() for name in "abc"} == {
        "a": f"{path}a{end}" if existing == "replace" else edit,
        "b": f"{path}b{end}",
        "c": f"{path}c{end}",
    }
    assert report["replaced"] == (existing == "replace")
    assert report["failed_by_error"] == ({"file-exists": 1} if existing == "fail" else {})
    if existing == "keep":
        assert run_downloader("verify", dest).returncode == 0


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("existing", ["keep", "fail", "replace"])
def test_stored_file_that_was_edited_after_a_run_is_the_users_when_its_batch_goes_on(
    run_downloader: Run, start: Start, tmp_path: Path, existing: str, apart: bool
) -> None:
    """Its batch was not finished when Ctrl-C ended the run."""
    dest, gate = tmp_path / "d", Gate()
    options = (*ONE, *(("--journal", tmp_path / "j") if apart else ()))
    with Server(routes={"/a": ok(b"a of the server"), "/z": gate}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a", "z"), "-o", dest, "--existing", existing, *options)
        job = stored_first(start, argv, dest, gate)
        job.kill(signal.SIGINT)
        assert job.wait() == 130
        (dest / "a").write_text(EDITED)
        gate.open()
        report = report_with(run_downloader(*argv), int(existing == "fail"))
    assert report["replaced"] == (existing == "replace")
    assert (dest / "a").read_text() == ("a of the server" if existing == "replace" else EDITED)


def test_file_of_a_job_of_an_earlier_version_is_fetched_again_whoever_has_changed_it(
    run_downloader: Run, tmp_path: Path
) -> None:
    """Its journal does not say when it was active; after this run it does."""
    dest = tmp_path / "d"
    with Server(routes={"/a": ok(b"a of the server")}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a"), "-o", dest, "--existing", "keep", *ONE)
        report_with(run_downloader(*argv))
        with contextlib.closing(sqlite3.connect(dest / ".downloader/journal.sqlite")) as journal, journal:
            assert journal.execute("DELETE FROM job WHERE key = 'runs'").rowcount == 1
        (dest / ".downloader/active").unlink()
        for text in ("a of the server", EDITED):
            (dest / "a").write_text(EDITED)
            assert report_with(run_downloader(*argv, "--relist"))["replaced"] == 0
            assert (dest / "a").read_text() == text


ENDS = ("killed", "killed, and not recorded", "full disk", "then refused")


@pytest.mark.parametrize("ends", ENDS)
def test_stored_file_that_was_edited_after_a_run_that_could_not_record_its_end(
    run_downloader: Run, start: Start, tmp_path: Path, ends: str
) -> None:
    """When a run was last active is known by the time of a file, also where the disk has no room."""
    dest, gate = tmp_path / "d", Gate()
    with Server(routes={"/a": ok(b"a of the server"), "/z": gate}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a", "z"), "-o", dest, "--existing", "keep", *ONE)
        job = stored_first(start, argv, dest, gate)
        active = dest / ".downloader/active"
        if ends.startswith("killed"):
            job.kill()
            job.alone()
            ago = time.time() - 60
            os.utime(active, (ago, ago))  # a minute has passed
            if ends != "killed":
                active.unlink()
            gate.open()
        else:
            gate.open()
            assert job.wait() == 0
            if ends == "full disk":  # the end was not written
                with contextlib.closing(Journal(open_home(dest / ".downloader"))) as journal:
                    journal.run("", ((journal.runs[0][0], 0),))
            else:
                assert run_downloader(*argv, "--report", dest / "a").returncode == 2
        (dest / "a").write_text(EDITED)
        report = report_with(run_downloader(*argv, "--relist"))
    is_kept = ends != "killed, and not recorded"
    assert report["replaced"] == 0
    assert (dest / "a").read_text() == (EDITED if is_kept else "a of the server")


@pytest.mark.parametrize("change", ["chmod", "rename", None])
def test_damage_is_not_taken_for_an_edit_where_only_names_or_permissions_have_changed(
    run_downloader: Run, tmp_path: Path, change: str | None
) -> None:
    """As where a power cut has emptied the file after the run: its time is that of the run."""
    dest = tmp_path / "d"
    with Server(routes={"/a": ok(b"a of the server")}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a"), "-o", dest, "--existing", "keep", *ONE)
        report_with(run_downloader(*argv))
        found = (dest / "a").stat()
        os.truncate(dest / "a", 0)
        os.utime(dest / "a", ns=(found.st_atime_ns, found.st_mtime_ns))
        if change == "chmod":
            (dest / "a").chmod(0o664)
        elif change == "rename":
            (dest / "a").rename(dest / "b").rename(dest / "a")
        report = report_with(run_downloader(*argv, "--relist"))
    assert (report["stored"], (dest / "a").read_text()) == (1, "a of the server")


@pytest.mark.parametrize("ends", ["killed", "by itself"])
def test_stored_file_that_is_damaged_while_a_run_is_active_is_fetched_again(
    run_downloader: Run, start: Start, tmp_path: Path, ends: str
) -> None:
    """As where its disk fails; so is what is changed in the first seconds after a kill."""
    dest, gate = tmp_path / "d", Gate()
    with Server(routes={"/a": ok(b"a of the server"), "/z": gate}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a", "z"), "-o", dest, "--existing", "keep", *ONE)
        job = stored_first(start, argv, dest, gate)
        if ends == "by itself":
            (dest / "a").write_text("")
            gate.open()
            assert job.wait() == 0
        else:
            job.kill()
            job.alone()
            (dest / "a").write_text("")
            gate.open()
        report = report_with(run_downloader(*argv, "--relist"))
    assert (report["stored"], report["replaced"]) == (1 + (ends == "killed"), 0)
    assert (dest / "a").read_text() == "a of the server"


@pytest.mark.parametrize("existing", ["keep", "fail"])
def test_damaged_file_that_is_a_link_is_known_by_where_it_leads(
    run_downloader: Run, tmp_path: Path, existing: str
) -> None:
    """A copy of DEST has links with other times. One that somebody has put there since leads elsewhere."""
    dest = tmp_path / "d"
    with Server(routes={f"/{name}": ok(f"body of {name}".encode()) for name in "ab"}) as server:
        argv = (list_of(server, tmp_path / "l.csv", *"ab"), "-o", dest, "--existing", existing, *ONE)
        report_with(run_downloader(*argv))
        for target in ("/gone", "/gone"), ("/gone", "/elsewhere"):
            for name, where in zip("ab", target, strict=True):
                (dest / name).unlink()
                (dest / name).symlink_to(where)
            if target[1] == "/gone":
                assert run_downloader("verify", dest).returncode == 1
        report = report_with(run_downloader(*argv), 1)
        assert (report["stored"], report["replaced"]) == (1, 0)
        assert report["failed_by_error"] == {"file-exists": 1}
    assert (dest / "a").read_text() == "body of a"
    assert os.readlink(dest / "b") == "/elsewhere"


class Gate:
    """A response that is held, the first time, until ``open()``; ``reached()`` waits for the request."""

    def __init__(self) -> None:
        self._asked, self._opened = Event(), Event()

    def __call__(self, request: Request) -> Any:
        self._asked.set()
        return [Until(self._opened), *ok(b"behind the gate")]

    def reached(self) -> None:
        assert self._asked.wait(30)

    def open(self) -> None:
        self._opened.set()


def stored_first(start: Start, argv: tuple[object, ...], dest: Path, gate: Gate) -> Job:
    """Return a run that has stored ``a`` and waits at the gate."""
    job = start(*argv)
    gate.reached()
    job.until((dest / "a").exists)
    return job


def test_kept_file_is_edited_after_a_kill(run_downloader: Run, start: Start, tmp_path: Path) -> None:
    """The batch that has kept it is open still."""
    dest, gate = tmp_path / "d", Gate()
    kept(dest, "mine")
    with Server(routes={"/a": ok(b"a of the server"), "/b": ok(b"b"), "/z": gate}) as server:
        argv = (list_of(server, tmp_path / "l.csv", "a", "b", "z"), "-o", dest, "--existing", "keep", *ONE)
        job = start(*argv)
        gate.reached()
        job.kill()
        job.alone()
        (dest / "a").write_text(EDITED)
        gate.open()
        report = report_with(run_downloader(*argv))
        assert (report["replaced"], report["failed"]) == (0, 0)
        assert (dest / "a").read_text() == EDITED
        assert run_downloader("verify", dest).returncode == 0


def worker_of(job: Job, dest: Path) -> int:
    """Return the process that has the ledger of a worker mapped."""
    for pid in job.children():
        if f"{dest}/.downloader/ledger-" in Path(f"/proc/{pid}/maps").read_text():
            return pid
    raise AssertionError("no worker")


@pytest.mark.parametrize("existing", ["keep", "replace"])
def test_report_counts_what_a_dead_worker_has_kept_and_replaced(
    start: Start, tmp_path: Path, existing: str
) -> None:
    dest, gate = tmp_path / "d", Gate()
    names = [f"n{number}" for number in range(20)]
    dest.mkdir()
    for name in names[::2]:
        (dest / name).write_text("mine")
    with Server(routes={**{f"/{name}": ok(b"theirs") for name in names}, "/z": gate}) as server:
        path = list_of(server, tmp_path / "l.csv", *names, "z")
        job = start(path, "-o", dest, "--existing", existing, *ONE)
        gate.reached()
        job.until(lambda: sum(path.read_text() == "theirs" for path in dest.glob("n*")) >= 10)
        os.kill(worker_of(job, dest), signal.SIGKILL)
        gate.open()
        assert job.wait() == 0, job.err
    report = json.loads(job.out)
    assert report["worker_deaths"] == 1
    if existing == "keep":
        assert (report["stored"], report["skipped"], report["replaced"]) == (11, 10, 0)
        assert [(dest / name).read_text() for name in names[:2]] == ["mine", "theirs"]
    else:
        assert (report["stored"], report["skipped"], report["replaced"]) == (21, 0, 10)


@pytest.mark.parametrize("more", [(), ("--manifest", "m.csv"), ("--hash", "md5", "--manifest", "m.csv")])
def test_large_files_of_the_user_come_while_small_ones_are_requested(
    more: tuple[str, ...], start: Start, tmp_path: Path
) -> None:
    """What takes long to read is read beside the others, also where responses are stored together."""
    dest, asked, opened = tmp_path / "d", Event(), Event()

    def answer(request: Request) -> Any:
        if request.target != "/200":
            return ok(b"x")
        asked.set()
        return [Until(opened), *ok(b"x")]

    with Server(default=answer) as server:
        source = list_of(server, tmp_path / "l.csv", *map(str, range(400)))
        options = ("--existing", "keep", "--workers", 1, "--connections", 1, "--json")
        argv = [tmp_path / each if each.endswith(".csv") else each for each in more]
        job = start(source, "-o", dest, *options, *argv)
        assert asked.wait(60)
        mine = [dest / str(number) for number in range(200, 230)]
        for path in mine:
            with path.open("xb") as file:
                file.truncate(3 << 20)
        opened.set()
        assert job.wait() == 0, job.err
    report = json.loads(job.out)
    assert (report["stored"], report["skipped"], report["worker_deaths"]) == (370, 30, 0)
    assert {path.stat().st_size for path in mine} == {3 << 20}
    agree(dest, 0, report)
