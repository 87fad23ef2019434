"""A name is taken only by another item of the job; whatever else has it, the same command finishes the job.

Files of the user are replaced, kept or refused, as --existing says, and never silently.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from checker import agree
from harness import Job, command, environment, report_with, slow_but
from servers import Request, Server, Step, Until, ok, status

ONE = ("--workers", 1, "--json")
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., Job]


def other_bytes_each_time() -> Callable[[Request], Sequence[Step]]:
    """Return a response with another body for each request."""
    numbers = iter(range(10**6))
    return lambda request: ok(f"body {next(numbers)} of {request.target}".encode())


@pytest.fixture
def changing() -> Iterator[Server]:
    """Run a server whose bodies differ for each request."""
    with Server(files={f"f{number:02}": other_bytes_each_time() for number in range(60)}) as server:
        yield server


def damage(path: Path) -> None:
    path.write_bytes(b"?" * 20)


def test_damaged_file_is_recognized_as_the_items_own(
    run_downloader: Run, start: Start, tmp_path: Path
) -> None:
    """With --existing fail only files that the job owns are replaced."""
    dest, gate = tmp_path / "d", Gate()
    with Server(files={"a": other_bytes_each_time(), "b": gate}) as server:
        argv = (server.url, "-o", dest, *ONE, "--pipeline", "off", "--existing", "fail")
        job = start(*argv)
        gate.reached()
        until_there(dest / "a", job)
        job.kill(signal.SIGINT)
        assert job.wait() == 130
        damage(dest / "a")
        assert "damaged: a" in run_downloader("verify", dest).stdout
        gate.open()
        report = report_with(run_downloader(*argv))
        assert (report["stored"], report["replaced"]) == (2, 0)
        assert (dest / "a").read_bytes().startswith(b"body")


def until_there(path: Path, job: Job) -> None:
    job.until(path.exists)


class Gate:
    """A response that is held until ``open()``; ``reached()`` waits until it is requested."""

    def __init__(self) -> None:
        self._asked, self._opened = Event(), Event()

    def __call__(self, request: Request) -> Sequence[Step]:
        self._asked.set()
        return [Until(self._opened), *ok(b"behind the gate")]

    def reached(self) -> None:
        assert self._asked.wait(30)

    def open(self) -> None:
        self._opened.set()


def test_damaged_file_is_replaced_after_server_failures(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(files={"a": ok(b"one"), "b": ok(b"two")}) as server:
        report_with(run_downloader(server.url, "-o", dest, *ONE))
        damage(dest / "a")
        assert run_downloader("verify", dest).returncode == 1
        seen = still_damaged(run_downloader, dest, "a")
        assert (seen["checked"], seen["agree"]) == (1, 1)
        server.routes["/get/a"] = status(404)
        failed = report_with(run_downloader(server.url, "-o", dest, *ONE), 1)
        assert failed["failed_by_error"] == {"http-404": 1}
        still_damaged(run_downloader, dest, "a")
        server.routes["/get/a"] = ok(b"one, new")
        mended = report_with(run_downloader(server.url, "-o", dest, *ONE, "--retry-failed"))
        assert (mended["stored"], mended["replaced"]) == (1, 0)
        assert (dest / "a").read_bytes() == b"one, new"
        assert run_downloader("verify", dest).returncode == 0
    agree(dest, 0)


@pytest.mark.parametrize("end", ["interrupted", "killed"])
def test_contested_name_is_pending_until_its_owner_is_known(
    end: str, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    """A run that ended earlier had the item in --failures, and status called the job complete."""
    dest, urls, failures = tmp_path / "d", tmp_path / "urls.txt", tmp_path / "f.jsonl"
    asked, opened = Event(), Event()

    def put_there(request: Request) -> Sequence[Step]:
        if not (dest / "mine").exists():
            (dest / "mine").write_text("mine")
        return ok(b"theirs")

    def held(request: Request) -> Sequence[Step]:
        asked.set()
        return [Until(opened), *ok(b"last")]

    routes = {"/mine": put_there, "/last": held}
    with Server(files={f"f{number}": ok(b"f") for number in range(31)}, routes=routes) as server:
        rows = ["/mine", *(f"/get/f{number}" for number in range(31)), "/last"]
        urls.write_text("".join(f"{server.url}{row}\n" for row in rows))  # the last is in the next batch
        argv = (urls, "-o", dest, *ONE, "-v", "--failures", failures, "--pipeline", "off")
        job = start(*argv)
        assert asked.wait(60)
        found = {}
        while found.get("stored") != 31:  # there is no event for that: the first batch is in the journal
            found = json.loads(run_downloader("status", dest, "--json").stdout)
        job.kill(signal.SIGINT if end == "interrupted" else signal.SIGKILL)
        if end == "interrupted":
            job.until(lambda: "finishing what is in flight" in job.err)
            opened.set()
            assert job.wait() == 130
            report = json.loads(job.out)
            assert (report["stored"], report["failed"], report["failed_by_error"]) == (32, 0, {})
            assert failures.read_text() == ""
        job.wait()
        job.alone()
        opened.set()
        assert "name-taken" not in job.err
        found = json.loads(run_downloader("status", dest, "--json").stdout)
        assert (found["complete"], found["failed"], found["failed_by_error"]) == (False, 0, {})
        assert found["pending"] == found["listed"] - found["stored"] > 0
        done = run_downloader(*argv)
        assert report_with(done)["replaced"] == 1
        assert "failed: " not in done.stderr
        assert (dest / "mine").read_bytes() == b"theirs"
        found = json.loads(run_downloader("status", dest, "--json").stdout)
        assert (found["complete"], found["pending"], found["failed"]) == (True, 0, 0)


def still_damaged(run_downloader: Run, dest: Path, name: str) -> dict[str, Any]:
    """Check that verify says of a file that is recorded as damaged what it said before; return that."""
    text = run_downloader("verify", dest).stdout
    assert "\n1 file is recorded as damaged or out of date, and not fetched again yet\n" in text
    assert f"damaged: {name}\n" in text
    done = run_downloader("verify", dest, "--json")
    seen: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, seen["damaged"], seen["damaged_count"]) == (1, [name], 1)
    return seen


def test_damaged_file_of_an_interrupted_job_is_replaced(
    run_downloader: Run, start: Start, tmp_path: Path, changing: Server
) -> None:
    dest = tmp_path / "d"
    changing.routes["/get/f30"] = gate = Gate()
    job = start(changing.url, "-o", dest, *ONE, "--pipeline", "off", "--connections", 1)
    gate.reached()
    job.kill(signal.SIGINT)
    assert job.wait() == 130
    stored = sorted(path for path in dest.glob("f*"))
    assert stored
    newest = stored[-1]
    damage(newest)
    assert newest.name in run_downloader("verify", dest).stdout
    still_damaged(run_downloader, dest, newest.name)
    said = json.loads(run_downloader("status", dest, "--json").stdout)
    assert (said["failed"], said["stored"]) == (0, len(stored) - 1)
    assert said["pending"] == said["listed"] - said["stored"]
    gate.open()
    report = report_with(run_downloader(changing.url, "-o", dest, *ONE))
    assert report["stored"] + report["skipped"] == 60
    agree(dest, 0, report)


@pytest.mark.parametrize(
    ("number", "victim"),
    slow_but([(1, "worker"), (20, "supervisor"), (60, "worker")], (1, 20, 60), ("supervisor", "worker")),
)
def test_worker_killed_between_publishing_a_file_and_recording_it(
    victim: str, number: int, run_downloader: Run, tmp_path: Path, changing: Server
) -> None:
    """strace stops the process after the system call that creates the name; then it is killed."""
    killed_behind_a_name(victim, number, "auto", run_downloader, tmp_path, changing)


def test_requests_client_worker_killed_between_publishing_and_recording(
    run_downloader: Run, tmp_path: Path, changing: Server
) -> None:
    killed_behind_a_name("supervisor", 20, "requests", run_downloader, tmp_path, changing)


def killed_behind_a_name(
    victim: str, number: int, lane: str, run_downloader: Run, tmp_path: Path, changing: Server
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    dest, trace = tmp_path / "d", tmp_path / "trace"
    inject = f"linkat:delay_exit=3000000:when={number}"
    line = ["strace", "-f", "-qq", "-o", trace, "-e", "trace=linkat", "-e", f"inject={inject}"]
    run = command(changing.url, "-o", dest, *ONE, "--pipeline", "off", "--lane", lane)
    process = subprocess.Popen(
        [*map(str, line), *run],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    worker = _held(process, dest, number)
    supervisor = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker if victim == "worker" else supervisor, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    if victim == "worker":
        assert process.returncode == 0, err
        report = json.loads(out)
        assert report["stored"] + report["skipped"] == 60
        agree(dest, 0, report)
        return
    held = {path.name: path.read_bytes() for path in dest.glob("f*")}
    report = report_with(run_downloader(changing.url, "-o", dest, *ONE))
    assert report["stored"] + report["skipped"] == 60
    assert {name: (dest / name).read_bytes() for name in held} == held  # none was fetched again
    agree(dest, 0, report)


def _held(process: subprocess.Popen[str], dest: Path, number: int) -> int:
    """Wait until ``number`` files have their names; return the worker that is stopped after the last
    one.
    """
    while len(list(dest.glob("f*"))) < number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)  # there is no event for this
    found = None
    while found is None:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
        found = next(
            (int(path.parent.name) for path in Path("/proc").glob("[0-9]*/status") if _is_held(path, dest)),
            None,
        )
    return found


def _is_held(status: Path, dest: Path) -> bool:
    try:
        # Only a worker has its ledger mapped; the feeder and the supervisor do not.
        return "(tracing stop)" in status.read_text() and f"{dest}/.downloader/ledger-" in (
            status.with_name("maps").read_text()
        )
    except OSError:
        return False


def test_two_items_of_one_name_are_distinguished_in_every_run(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(routes={"/x/a": ok(b"first"), "/y/a": ok(b"second")}) as server:
        (tmp_path / "urls.txt").write_text(f"{server.url}/x/a\n{server.url}/y/a\n")
        for _ in range(2):
            report = report_with(run_downloader(tmp_path / "urls.txt", "-o", dest, *ONE), 1)
            assert report["failed_by_error"] == {"name-taken": 1}
        first = (dest / "a").read_bytes()
        # The owner is damaged: it is replaced by its own bytes, not by those of the other.
        damage(dest / "a")
        assert run_downloader("verify", dest).returncode == 1
        report_with(run_downloader(tmp_path / "urls.txt", "-o", dest, *ONE), 1)
        assert (dest / "a").read_bytes() == first


def mine(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine\n")


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_user_file_is_replaced_and_reported(
    kind: str, lane: str, run_downloader: Run, tmp_path: Path
) -> None:
    dest = tmp_path / "d"
    mine(dest / "x" if kind == "file" else tmp_path / "target")
    if kind == "symlink":
        dest.mkdir()
        (dest / "x").symlink_to(tmp_path / "target")
    with Server(files={"x": ok(b"theirs"), "y": ok(b"y")}) as server:
        done = run_downloader(server.url, "-o", dest, "--workers", 1, "--lane", lane)
        assert done.returncode == 0
        assert "1 of the stored replaced files that were there before" in done.stdout
        assert (dest / "x").read_bytes() == b"theirs"
        assert not (dest / "x").is_symlink()
        assert kind == "file" or (tmp_path / "target").read_text() == "mine\n"


def test_user_file_is_kept_and_not_requested(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    mine(dest / "x")
    with Server(files={"x": ok(b"theirs"), "y": ok(b"y")}) as server:
        report = report_with(run_downloader(server.url, "-o", dest, *ONE, "--existing", "keep"))
        assert (report["stored"], report["skipped"], report["replaced"]) == (1, 1, 0)
        assert server.count("/get/x") == 0
    assert (dest / "x").read_text() == "mine\n"
    assert run_downloader("verify", dest).returncode == 0
    agree(dest, 0, report)


def test_user_file_makes_the_download_fail(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    mine(dest / "x")
    with Server(files={"x": ok(b"theirs"), "y": ok(b"y")}) as server:
        report = report_with(run_downloader(server.url, "-o", dest, *ONE, "--existing", "fail"), 1)
        assert report["failed_by_error"] == {"file-exists": 1}
        assert (dest / "x").read_text() == "mine\n"
        # The user changes the option.
        again = report_with(run_downloader(server.url, "-o", dest, *ONE, "--existing", "replace"))
        assert (again["stored"], again["replaced"]) == (1, 1)


@pytest.mark.parametrize(
    ("source", "existing"),
    slow_but(
        [("server", "replace"), ("list", "replace"), ("server", "keep"), ("list", "fail")],
        ("server", "list"),
        ("replace", "keep", "fail"),
    ),
)
def test_user_file_created_while_the_job_was_interrupted(
    source: str, existing: str, run_downloader: Run, tmp_path: Path
) -> None:
    """The journal shows that no item owns it."""
    dest = tmp_path / "d"
    with Server(files={"a": ok(b"a"), "b": ok(b"theirs")}) as server:
        where: Any = server.url
        if source == "list":
            where = tmp_path / "urls.txt"
            where.write_text(f"{server.url}/get/a\n{server.url}/get/b\n")
        report_with(run_downloader(where, "-o", dest, *ONE, "--limit", 1))
        mine(dest / "b")
        done = run_downloader(where, "-o", dest, *ONE, "--existing", existing)
        report = report_with(done, 1 if existing == "fail" else 0)
        expected = {"replace": "theirs", "keep": "mine\n", "fail": "mine\n"}
        assert (dest / "b").read_text() == expected[existing]
        assert report["replaced"] == (existing == "replace")
        assert report["failed_by_error"] == ({"file-exists": 1} if existing == "fail" else {})
        assert "Traceback" not in done.stderr
        agree(dest, done.returncode, report)


def test_download_named_like_the_url_list(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    dest.mkdir()
    with Server(routes={"/urls.txt": ok(b"theirs"), "/b": ok(b"b")}) as server:
        lines = f"{server.url}/urls.txt\n{server.url}/b\n"
        (dest / "urls.txt").write_text(lines)
        report = report_with(run_downloader(dest / "urls.txt", "-o", dest, *ONE), 1)
        assert report["failed_by_error"] == {"reserved": 1}
        assert (dest / "urls.txt").read_text() == lines
        assert (dest / "b").read_bytes() == b"b"


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("d/*.txt", ()),
        ("d/lists/*.txt", ()),
        ("d/lists", ()),
        ("*/*.txt", ()),
        ("**/*.txt", ()),
        ("d/*/x/*.txt", ()),
        ("d", ("--layout", "mirror")),
        ("d", ("--store", "tar")),
    ],
)
def test_lists_are_not_looked_for_in_the_destination(
    source: str, options: tuple[str, ...], run_downloader: Run, tmp_path: Path
) -> None:
    """A file that a server sent would be a list when the same command is run again."""
    (tmp_path / "d" / "lists").mkdir(parents=True)
    (tmp_path / "d" / "x" / "x").mkdir(parents=True)
    for directory in ("d", "d/lists", "d/x/x"):
        (tmp_path / directory / "urls.txt").write_text("http://127.0.0.1:9/a\n")
    refused = run_downloader(tmp_path / source, "-o", tmp_path / "d", *options)
    assert refused.returncode == 2, refused
    assert "what is stored there would be listed" in refused.stderr
    assert not (tmp_path / "d" / ".downloader").exists()


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("lists/*.txt", ()),
        ("l*/*.txt", ()),
        ("*.txt", ()),
        ("d/lists/*.txt", ("--store", "tar")),
        (".", ()),
    ],
)
def test_lists_beside_the_destination(
    source: str, options: tuple[str, ...], run_downloader: Run, tmp_path: Path
) -> None:
    with Server(routes={"/a": ok(b"a")}) as server:
        for directory in ("", "lists", "d/lists"):
            (tmp_path / directory).mkdir(parents=True, exist_ok=True)
            (tmp_path / directory / "urls.txt").write_text(f"{server.url}/a\n")
        done = run_downloader(tmp_path / source, "-o", tmp_path / "d", "--json", *options)
    assert (done.returncode, json.loads(done.stdout)["stored"]) == (0, 1), done


@pytest.mark.parametrize("option", ["--report", "--failures"])
def test_download_named_like_the_report(option: str, run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(files={"out.json": ok(b"theirs"), "b": ok(b"b")}) as server:
        report = report_with(run_downloader(server.url, "-o", dest, *ONE, option, dest / "out.json"), 1)
        assert report["failed_by_error"] == {"reserved": 1}
        assert b"theirs" not in (dest / "out.json").read_bytes()
        # Without the option it is a file like any other; but then a report must not replace it.
        report_with(run_downloader(server.url, "-o", dest, *ONE))
        assert (dest / "out.json").read_bytes() == b"theirs"
        refused = run_downloader(server.url, "-o", dest, *ONE, option, dest / "out.json")
        assert refused.returncode == 2
        assert "is a file that was downloaded here" in refused.stderr
        assert (dest / "out.json").read_bytes() == b"theirs"


def test_destination_renamed_during_the_run(start: Start, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    gate = Gate()
    with Server(files={"a": ok(b"a"), "b": status(404), "c": gate}) as server:
        job = start(server.url, "-o", dest, "--workers", 1, "--pipeline", "off")
        gate.reached()
        dest.rename(tmp_path / "elsewhere")
        gate.open()
        assert job.wait() == 4, job.err
        assert f"{dest} was removed, moved or replaced" in job.err
        (tmp_path / "elsewhere").rename(dest)
        again = start(server.url, "-o", dest, "--workers", 1)
        assert again.wait() == 1, again.err
        assert "b: http-404" in again.out
    assert (dest / "c").read_bytes() == b"behind the gate"


def test_journal_removed_during_the_run(start: Start, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    gate = Gate()
    with Server(files={"a": ok(b"a"), "b": status(404), "c": gate}) as server:
        job = start(server.url, "-o", dest, "--workers", 1, "--pipeline", "off")
        gate.reached()
        shutil.rmtree(dest / ".downloader")
        gate.open()
        assert job.wait() in (1, 4), job.err
        assert "b: http-404" in job.out
        assert "nothing was downloaded there" not in job.err


def test_large_files_that_are_kept_hold_up_no_other(
    start: Start, run_downloader: Run, tmp_path: Path
) -> None:
    """Others of the batch are requested first, a stop is heard meanwhile, and terabytes are not read."""
    root, asked = tmp_path / "d", Event()
    root.mkdir()
    kept = [f"a{number:02}" for number in range(40)]
    for name in kept:
        (root / name).touch()
        os.truncate(root / name, 1 << 30)
    (root / "b").touch()
    os.truncate(root / "b", 10 << 40)

    def answer(request: Request) -> Sequence[Step]:
        asked.set()
        return ok(b"z")

    with Server(files={**dict.fromkeys([*kept, "b"], ok(b"new")), "z": answer}) as server:
        argv = (server.url, "-o", root, "--existing", "keep", "--workers", 1, "--json")
        job = start(*argv)
        assert asked.wait(30)
        job.kill(signal.SIGINT)
        assert job.wait() == 130, job.err
        report = json.loads(job.out)
        assert report["skipped"] < len(kept)  # most of them were not read yet
        for name in kept:
            (root / name).unlink()
        done = run_downloader(*argv)
        report = json.loads(done.stdout)
        assert (done.returncode, report["failed"]) == (0, 0), done
    assert (root / "b").stat().st_size == 10 << 40
    assert run_downloader("verify", root).returncode == 0
    os.truncate(root / "b", 9 << 40)
    assert run_downloader("verify", root).returncode == 1
