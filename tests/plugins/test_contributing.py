"""What CONTRIBUTING.md tells to do is done as it is written there, and works.

Each block of code behind a line that names a file is that file, and each diff is applied to a copy of the
program. A step that is missing on the page is missing in the copy.
"""

from __future__ import annotations

import gzip
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, environment
from servers import Request, Server, Step, ok

from diagnostics.scenario import Expected, read
from downloader.config.sink_kinds import SinkForm, Unsharded
from downloader.config.source_kinds import SourceForm
from downloader.sinks.sink import BatchWriter, FileWriter, Sink, SinkKind
from downloader.sources.source import Lister, RequestBuilder, SourceKind

PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def section(title: str) -> str:
    found = PAGE.partition(f"\n## {title}\n")[2]
    assert found
    return found.partition("\n## ")[0]


def write_files(text: str, folder: Path) -> list[str]:
    """Write the files in ``text`` into ``folder``; return their names."""
    found = re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for name, content in found:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return [name for name, _ in found]


def apply_diffs(text: str, folder: Path) -> int:
    """Apply the diffs in ``text`` to the files in ``folder``; return how many there are.

    They have no numbers of lines: what they keep and remove stands in the file once.
    """
    found = re.findall(r"^```diff\n--- (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for name, diff in found:
        lines = diff.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        before = (folder / name).read_text()
        assert before.count(f"\n{old}") == 1, f"{name} does not have once:\n{old}"
        (folder / name).write_text(before.replace(f"\n{old}", f"\n{new}"))
    return len(found)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the program."""
    folder = tmp_path / "copy"
    for part in ("downloader", "diagnostics"):
        shutil.copytree(ROOT / part, folder / part)
    return folder


def run(folder: Path, *argv: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a module of the program in ``folder``, or of this one with what is installed there."""
    env = environment(PYTHONPATH=str(folder))
    env["PYTHONPATH"] = os.pathsep.join([str(folder), env["PYTHONPATH"]])
    command = [sys.executable, "-m", *map(str, argv)]
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False
    )


def numbered(request: Request) -> list[Step]:
    return list(ok(f"the file at {request.target}".encode()))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=numbered) as made:
        yield made


def files(count: int) -> dict[str, bytes]:
    return {f"{number}.gz": f"the file at /f/{number}".encode() for number in range(count)}


def stored(dest: Path) -> dict[str, bytes]:
    return {path.name: gzip.decompress(path.read_bytes()) for path in dest.iterdir() if path.is_file()}


def test_a_package_with_the_source_and_the_sink(tmp_path: Path, server: Server) -> None:
    written = write_files(section("Adding a source") + section("Adding a sink"), tmp_path / "package")
    assert written == ["numbered.py", "pyproject.toml", "gzipped.py"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"]
    installed = tmp_path / "installed"
    subprocess.run([*pip, "--target", installed, tmp_path / "package"], check=True, timeout=100)

    shown = run(installed, "downloader", "--help", cwd=tmp_path).stdout
    assert "--source server|urls|numbered" in shown
    assert "--numbered-count N" in shown
    assert "gzip" in re.findall(r"--store (\S+)", shown)[0].split("|")

    dest = tmp_path / "dest"
    argv = (
        "downloader",
        f"numbered:{server.url}/f/",
        "-o",
        dest,
        "--numbered-count",
        40,
        "--store",
        "gzip",
    )
    refused = run(installed, *argv[:4], "--numbered-count", 0, "--store", "gzip", cwd=tmp_path)
    assert (refused.returncode, "--numbered-count must be at least 1" in refused.stderr) == (2, True)
    done = run(installed, *argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert stored(dest) == files(40)

    (dest / "7.gz").write_bytes(gzip.compress(b"something else"))
    seen = run(installed, "downloader", "verify", dest, cwd=tmp_path)
    assert (seen.returncode, seen.stdout.splitlines()[0]) == (1, "damaged: 7"), seen
    done = run(installed, *argv, cwd=tmp_path)  # which has the batch made again
    assert done.returncode == 0, done.stderr
    assert stored(dest) == files(40)


def members(*protocols: type) -> set[str]:
    """Return what an object must have to be what ``protocols`` describe."""
    bases = {base for each in protocols for base in each.__mro__}
    every = {name for base in bases for name in (*vars(base), *inspect.get_annotations(base))}
    return {name for name in every if not name.startswith("_")}


def test_the_page_leaves_out_nothing_that_a_kind_must_have() -> None:
    for title, protocols in (
        ("Adding a source", (SourceForm, SourceKind, Lister, RequestBuilder)),
        ("Adding a sink", (SinkForm, SinkKind, Sink, BatchWriter, FileWriter)),
    ):
        given = set(re.findall(r"\b\w+\b", section(title)))
        ready = set(dir(Unsharded)) if "sink" in title else set()
        assert members(*protocols) - given - ready == set()


def test_a_source_of_the_project(copy: Path, tmp_path: Path, server: Server) -> None:
    page = section("Adding a source")
    write_files(page, copy / "downloader/sources")
    assert apply_diffs(page, copy) == 1
    argv = ("downloader", f"numbered:{server.url}/f/", "-o", tmp_path / "dest", "--numbered-count", 5)
    done = run(copy, *argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {f"{path.name}.gz" for path in (tmp_path / "dest").glob("[0-9]*")} == set(files(5))


def test_an_option(copy: Path, tmp_path: Path, server: Server) -> None:
    before = run(copy, "downloader", "--help", cwd=tmp_path).stdout
    assert apply_diffs(section("Adding an option"), copy) == 2
    shown = run(copy, "downloader", "--help", cwd=tmp_path).stdout
    (line,) = [number for number, text in enumerate(shown.splitlines()) if "--contact ADDRESS" in text]
    assert "--contact" not in before
    assert shown.splitlines()[line - 1] in before, "it is not where the help has it"
    (tmp_path / "urls.txt").write_text(f"{server.url}/f/1\n{server.url}/f/2\n")
    argv = ("downloader", "urls.txt", "-o", "dest", "--contact", "me@example.com")
    done = run(copy, *argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [each.header("From") for each in server.requests] == ["me@example.com"] * len(server.requests)


def test_a_cause(copy: Path, tmp_path: Path) -> None:
    page = section("Adding a cause to the diagnostics")
    (scenario,) = write_files(page, copy)
    assert apply_diffs(page, copy) == 3
    (expected,) = read(copy / scenario)
    listed = run(copy, "diagnostics", "scenarios", "--list", cwd=tmp_path).stdout
    assert expected.name in listed
    argv = ("--json", "--fix", "--requests", 4, "--delay", "100ms", "--app", expected.app)
    found = json.loads(run(copy, "diagnostics", *argv, cwd=(copy / scenario).parent).stdout)
    (cause,) = found["causes"]
    assert Expected(found["verdict"], cause["code"], cause["where"]) == expected.expected
    assert [(each["code"], each["verdict"]) for each in found["remedies"]] == [
        ("gevent-shell", "concurrent")
    ]
