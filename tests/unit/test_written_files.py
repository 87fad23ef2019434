"""No report is written over a file that the run reads, nor into the files of the tool's own."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from downloader.config.config import Config
from downloader.config.contradictions import may_replace
from downloader.errors import ConfigError
from downloader.files.below import descriptor_of, on_disk

PEM = "-----BEGIN CERTIFICATE-----\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.csv").write_text("url\nhttp://h/a\n")
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text(PEM)
    for name in ("netrc", "auth"):
        (tmp_path / name).write_text("machine h login u password p\n" if name == "netrc" else "u:p\n")
        (tmp_path / name).chmod(0o600)
    (tmp_path / "d" / ".downloader").mkdir(parents=True)
    (tmp_path / "j" / ".downloader").mkdir(parents=True)
    (tmp_path / "d" / ".downloader" / "lock").touch()
    return tmp_path


def refused(**more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Config(**{"source": "list.csv", "output": "d", **more})
    return str(caught.value)


READ: dict[str, dict[str, Any]] = {
    "list.csv": {},
    "ca.pem": {"cacert": "ca.pem"},
    "cert.pem": {"cert": "cert.pem", "key": "key.pem"},
    "key.pem": {"cert": "cert.pem", "key": "key.pem"},
    "netrc": {"netrc": "netrc"},
    "auth": {"auth": ("u", "p"), "auth_file": "auth"},
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("option", ["report", "failures", "manifest"])
def test_file_that_is_read_is_not_written(option: str, name: str, here: Path) -> None:
    """Whichever way leads to it."""
    os.link(name, "hard.csv")
    os.symlink(here / name, "soft.csv")
    os.symlink("soft.csv", "softer.csv")
    spellings = ["hard.csv", "soft.csv", "softer.csv"]
    if option != "manifest" or name == "list.csv":  # its suffix decides the format
        spellings += [name, f"./{name}", f"d/../{name}", str(here / name)]
    for path in spellings:
        said = refused(**READ[name], **{option: path})
        assert said.startswith(f"--{option}: {path} is a file that this run reads"), said


def test_files_of_a_bag_are_not_written(here: Path) -> None:
    (here / "bag").mkdir()
    (here / "bag" / "bagit.txt").write_text("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")
    (here / "bag" / "fetch.txt").write_text("http://h/a - data/a\n")
    (here / "bag" / "manifest-md5.txt").write_text("d41d8cd98f00b204e9800998ecf8427e  data/a\n")
    for name in ("bagit.txt", "fetch.txt", "manifest-md5.txt"):
        assert "is a file that this run reads" in refused(source="bag/fetch.txt", report=f"bag/{name}"), (
            name
        )


def test_files_of_the_tool_are_not_written(here: Path) -> None:
    os.symlink("d/.downloader", "inside")
    os.symlink("d/.downloader/lock", "lock")
    for path in ("d/.downloader/lock", "d/.downloader/new", "inside/new", "lock", "j/.downloader/new"):
        assert "is for this program" in refused(report=path), path
    assert "is for this program" in refused(journal="j", failures="j/.downloader/new")
    for path in ("00000.tar", "00000_stats.json", "shards.json"):
        assert "is the name of a file of a shard" in refused(store="tar", report=f"d/{path}"), path


def test_two_written_files_are_two(here: Path) -> None:
    (here / "r").touch()
    os.link("r", "hard")
    os.symlink("r", "soft")
    for other in ("r", "./r", "hard", "soft"):
        assert "one file" in refused(report="r", failures=other), other


def test_a_descriptor_and_the_file_that_it_is_are_one(here: Path) -> None:
    with open("r", "wb") as file:
        named = f"/dev/fd/{file.fileno()}"
        for report, failures in ((named, "r"), ("r", named)):
            assert "one file" in refused(report=report, failures=failures)
        Config(source="list.csv", output="d", report=named, failures=f"/proc/self/fd/{file.fileno()}")


def test_which_paths_are_descriptors(here: Path) -> None:
    os.symlink("/dev/stdout", "out")
    os.symlink(here / "out", "d/inside")
    os.symlink("d/inside", "through")
    (here / "1").touch()
    named = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", f"/proc/{os.getpid()}/fd/1", "out", "d/inside")
    assert [descriptor_of(path) for path in named] == [1] * len(named)
    assert [descriptor_of(path, "d") for path in named] == [1] * 5 + [None]
    none = ("1", "/dev/null", "/dev/fd", "/dev/fd/x", "missing", "through")
    assert [descriptor_of(path, "d") for path in none] == [None] * len(none)


MOUNTS = r"""1 0 8:1 / / rw - ext4 /dev/a rw
2 1 8:2 / /data rw shared:1 - ext4 /dev/b rw
3 1 8:2 /d/x /else\040where rw - ext4 /dev/b rw
4 1 0:9 / /else\040where/over rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/", ("8:1", "/")),
        ("/data", ("8:2", "/")),
        ("/data/d/x", ("8:2", "/d/x/")),
        ("/database", ("8:1", "/database/")),
        ("/else where", ("8:2", "/d/x/")),
        ("/else where/y", ("8:2", "/d/x/y/")),
        ("/else where/over/y", ("0:9", "/y/")),
    ],
)
def test_where_a_directory_is_on_its_disk(path: str, place: tuple[str, str]) -> None:
    assert on_disk(MOUNTS, path) == place


@pytest.mark.parametrize(
    ("mode", "above", "owner", "user", "may"),
    [
        (0o777, 0, 1, 2, True),
        (0o1777, 0, 1, 2, False),
        (0o1777, 0, 2, 2, True),
        (0o1777, 2, 1, 2, True),
        (0o1777, 3, 1, 0, True),
    ],
)
def test_who_may_replace_a_file(mode: int, above: int, owner: int, user: int, may: bool) -> None:
    directory = os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, above, 0, 0, 0, 0, 0))
    assert may_replace(directory, owner, user) is may


def test_what_is_nobodys_is_written(here: Path) -> None:
    (here / "r.json").touch()
    made = Config(source="list.csv", output="d", report="r.json", failures="d/f.jsonl", manifest="m.csv")
    assert made.written_files == (
        ("--report", "r.json"),
        ("--failures", "d/f.jsonl"),
        ("--manifest", "m.csv"),
    )


def test_command_line_refuses_before_anything_is_touched(
    here: Path, run_downloader: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    before = (here / "list.csv").read_bytes()
    with (here / "list.csv").open() as stdin:
        done = run_downloader(
            *("-", "--list-format", "csv", "-o", "new", "--report", "list.csv"), cwd=here, stdin=stdin
        )
    assert (done.returncode, "standard input" in done.stderr) == (2, True), done.stderr
    done = run_downloader("list.csv", "-o", "new", "--auth-file", "auth", "--report", "auth", cwd=here)
    assert (done.returncode, "(--auth-file)" in done.stderr) == (2, True), done.stderr
    assert ((here / "list.csv").read_bytes(), (here / "auth").read_text()) == (before, "u:p\n")
    assert not (here / "new").exists()
