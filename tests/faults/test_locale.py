"""A locale other than UTF-8: names on the disk are UTF-8 all the same, and no run ends because of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import run
from servers import Request, Server, Step, ok, status

NAMES = ["plain", "café", "日本", "a€"]


@pytest.fixture(params=["C", "latin-1"])
def locale(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return the environment of such a locale."""
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if request.param == "C":
        return {**plain, "LC_ALL": "C"}
    made = tmp_path / "locales" / "en_US.ISO-8859-1"
    made.parent.mkdir()
    if (
        shutil.which("localedef") is None
        or subprocess.run(
            ["localedef", "-i", "en_US", "-f", "ISO-8859-1", made], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no locale of ISO 8859-1 can be made here")
    return {**plain, "LC_ALL": made.name, "LOCPATH": str(made.parent)}


def on_disk(root: bytes) -> set[str]:
    """Return the names of the files under ``root``: bytes, decoded as UTF-8."""
    return {
        os.path.relpath(os.path.join(folder, name), root).decode()
        for folder, _, names in os.walk(root)
        for name in names
        if b".downloader" not in folder
    }


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    # JSON is UTF-8 in every locale.
    record: dict[str, Any] = json.loads(done.stdout.encode("utf-8", "surrogateescape").decode())
    return record


@pytest.mark.parametrize("layout", ["flat", pytest.param("hashed", marks=pytest.mark.slow), "mirror"])
def test_names_outside_the_locale_are_stored(layout: str, tmp_path: Path, locale: dict[str, str]) -> None:
    # DEST is not valid text in the encodings of the locales, nor in UTF-8.
    dest = os.fsencode(tmp_path) + b"/d\xff\xc3\xa9"
    args = ("-o", os.fsdecode(dest), "--layout", layout, "--workers", "1", "--retries", "0", "--json")
    args += ("--failures", os.fsdecode(dest + b".jsonl"), "--report", os.fsdecode(dest + b".json"))
    how: dict[str, Any] = {"env": locale, "errors": "surrogateescape"}
    with Server(files={name: ok(name.encode()) for name in NAMES}) as server:
        server.routes["/get/caf%C3%A9"] = status(404)
        first = run(server.url, *args, **how)
        assert (first.returncode, said(first)["stored"]) == (1, 3), first.stderr
        failed = json.loads(Path(os.fsdecode(dest + b".jsonl")).read_bytes())
        assert failed["name"].endswith("café")
        server.routes["/get/caf%C3%A9"] = ok("café".encode())
        second = run(server.url, *args, "-v", "--log-json", **how)
        assert (second.returncode, said(second)["stored"], said(second)["skipped"]) == (0, 1, 3)
        above = f"127.0.0.1:{server.port}/get/"
    above = {"flat": "", "hashed": "??/??/", "mirror": above}[layout]
    assert {above + path[len(above) :] for path in on_disk(dest)} == {above + name for name in NAMES}
    for env in (locale, {}):
        checked = run("verify", os.fsdecode(dest), env=env, errors="surrogateescape")
        assert (checked.returncode, checked.stdout) == (0, "4 of 4 files agree with the journal\n")
        assert run("status", os.fsdecode(dest), env=env, errors="surrogateescape").returncode == 0
    Path(os.fsdecode(os.path.join(dest, sorted(on_disk(dest))[0].encode()))).unlink()
    damaged = run("verify", os.fsdecode(dest), **how)
    assert damaged.returncode == 1
    assert damaged.stdout.startswith("damaged: ")


def test_a_list_with_names_outside_the_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    dest, source = os.fsencode(tmp_path) + b"/d", os.fsencode(tmp_path) + b"/l\xff\xc3\xa9.txt"

    def rows(request: Request) -> list[Step]:
        return ok(request.target.encode())

    with Server(default=rows) as server:
        with open(source, "wb") as file:
            file.writelines(f"{server.url}/{name}\n".encode() for name in NAMES)
        argv = (os.fsdecode(source), "-o", os.fsdecode(dest), "--workers", "1")
        for _ in range(2):
            done = run(*argv, env=locale, errors="surrogateescape")
            assert done.returncode == 0, done.stderr
    assert on_disk(dest) == set(NAMES)
    listed = run(os.fsdecode(source), "--dry-run", "--json", env=locale, errors="surrogateescape")
    assert said(listed)["first"] == NAMES
    again = run(os.fsdecode(source), "-o", os.fsdecode(dest), "--json")  # the same job in another locale
    assert (again.returncode, said(again)["skipped"]) == (0, len(NAMES)), again.stderr


def test_taken_name_outside_the_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    dest, source = tmp_path / "d", tmp_path / "l.txt"
    with Server({"/1/caf%C3%A9": ok(b"one"), "/2/caf%C3%A9": ok(b"two")}) as server:
        source.write_text(f"{server.url}/1/café\n{server.url}/2/café\n")
        argv = (source, "-o", dest, "--workers", "1", "--failures", tmp_path / "f")
        done = run(*argv, env=locale, errors="surrogateescape")
    assert done.returncode == 1, done.stderr
    failed = json.loads((tmp_path / "f").read_bytes())
    assert (failed["code"], failed["name"]) == ("name-taken", "café")
    assert failed["detail"].startswith("café: ")
