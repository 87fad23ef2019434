"""A directory that has two paths, by ``mount --bind``: what is in DEST is known by either."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import Server, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Bind = Callable[[str, str], None]
NAMES = "n1.txt", "n2.txt", "list.csv"


@pytest.fixture
def bind(tmp_path: Path) -> Iterator[Bind]:
    """Return a function that mounts one directory or file at another, both made if need be."""
    mounted: list[Path] = []

    def mount(source: str, target: str) -> None:
        for name in (source, target):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
        argv = ["mount", "--bind", tmp_path / source, tmp_path / target]
        if os.geteuid() or subprocess.run(argv, capture_output=True, check=False).returncode:
            pytest.skip("this user may not mount")
        mounted.append(tmp_path / target)

    yield mount
    for target in reversed(mounted):
        subprocess.run(["umount", target], check=True)


@pytest.fixture
def rows() -> Iterator[str]:
    """Return a list of three files, of which one has the name of a list."""
    with Server() as server:
        server.routes |= {f"/{name}": ok(name.encode()) for name in NAMES}
        yield "url,name\n" + "".join(f"{server.url}/{name},{name}\n" for name in NAMES)


@pytest.mark.parametrize(("one", "other"), [("d1", "d2"), ("d1/sub", "d2/sub"), ("d2/sub", "d1")])
def test_list_in_the_destination_is_not_replaced(
    run_downloader: Run, tmp_path: Path, bind: Bind, rows: str, one: str, other: str
) -> None:
    """``one`` is mounted at ``other``: DEST, a directory of it, or such a one elsewhere."""
    bind(one, other)
    below = other.partition("/")[2] if one != "d2/sub" else "sub"
    name = f"{below}/list.csv" if below else "list.csv"
    path = Path(one if one != "d2/sub" else other) / "list.csv"
    (tmp_path / path).write_text(text := rows.replace(",list.csv", f",{name}"))
    done = run_downloader(path, "-o", "d2", "--failures", "f.jsonl", cwd=tmp_path)
    assert (done.returncode, (tmp_path / path).read_text()) == (1, text), done.stdout
    assert '"reserved"' in (tmp_path / "f.jsonl").read_text()


def test_reports_replace_nothing_that_was_stored(
    run_downloader: Run, tmp_path: Path, bind: Bind, rows: str
) -> None:
    bind("d1", "d2")
    (tmp_path / "l.csv").write_text(rows)
    for option, where, store in (
        ("--failures", "d1/n2.txt", "files"),
        ("--report", "d1/00000.tar", "tar"),
        ("--report", "d1/00000_stats.json", "tar"),
    ):
        job = ("l.csv", "-o", f"d2/{store}", "--store", store)
        assert run_downloader(*job, cwd=tmp_path).returncode == 0
        path = where.replace("d1", f"d1/{store}")
        before = (tmp_path / path).read_bytes()
        done = run_downloader(*job, option, path, cwd=tmp_path)
        assert (done.returncode, (tmp_path / path).read_bytes()) == (2, before), done
        assert f"{option}: " in done.stderr
        assert run_downloader("verify", f"d2/{store}", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("there", [False, True])
def test_two_reports_are_not_one_file(
    run_downloader: Run, tmp_path: Path, bind: Bind, *, there: bool
) -> None:
    bind("o1", "o2")
    if there:
        (tmp_path / "o1" / "q").touch()
    argv = ("http://h", "-o", "d", "--report", "o1/q", "--failures", "o2/q")
    done = run_downloader(*argv, cwd=tmp_path)
    assert (done.returncode, "are one file" in done.stderr) == (2, True), done


@pytest.mark.parametrize(
    ("source", "target", "lists"),
    [("d1", "d2", "d1/*.csv"), ("d1", "d2", "d1"), ("p/d2", "q", "q"), ("p", "q", "q/*/*.csv")],
)
def test_lists_are_not_looked_for_in_the_destination(
    run_downloader: Run, tmp_path: Path, bind: Bind, rows: str, source: str, target: str, lists: str
) -> None:
    bind(source, target)
    output = "d2" if source == "d1" else "p/d2"
    (tmp_path / output).mkdir(exist_ok=True)
    (tmp_path / output / "l.csv").write_text(rows)
    done = run_downloader(lists, "-o", output, cwd=tmp_path)
    assert (done.returncode, "looked for in" in done.stderr) == (2, True), done


def test_a_link_in_what_is_mounted_into_the_destination_is_not_followed(
    run_downloader: Run, tmp_path: Path, bind: Bind
) -> None:
    bind("e", "d/ext")
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "e" / "r.json").symlink_to(tmp_path / "outside")
    done = run_downloader("http://h", "-o", "d", "--report", "e/r.json", cwd=tmp_path)
    assert (done.returncode, "d/ext/r.json is a symbolic link" in done.stderr) == (2, True), done
    assert (tmp_path / "outside").read_text() == "precious"


def test_a_report_that_is_mounted_by_itself_is_refused_at_the_start(
    run_downloader: Run, tmp_path: Path, bind: Bind
) -> None:
    """As with ``docker run -v $PWD/r.json:/r.json``: nothing can be renamed to it."""
    bind("e", "e2")
    for name in ("r.json", "r2.json"):
        (tmp_path / name).touch()
    subprocess.run(["mount", "--bind", tmp_path / "r.json", tmp_path / "r2.json"], check=True)
    try:
        done = run_downloader("http://h", "-o", "d", "--report", "r2.json", cwd=tmp_path)
    finally:
        subprocess.run(["umount", tmp_path / "r2.json"], check=True)
    assert (done.returncode, "mount its directory" in done.stderr) == (2, True), done
