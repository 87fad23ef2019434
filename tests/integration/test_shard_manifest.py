"""``--manifest`` with shards: shard and key of each file, also where they do not follow from its row."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from servers import Request, Server, Step, ok, status

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def answer(request: Request) -> Sequence[Step]:
    return ok(request.target.encode(), "Content-Type: image/jpeg")


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_a_manifest_made_later_knows_what_the_rows_have(
    store: str, run_downloader: Run, tmp_path: Path
) -> None:
    source, manifests = tmp_path / "list.csv", []
    with Server(default=answer) as server:
        source.write_text("url,caption\n" + "".join(f"{server.url}/{n}.jpg,c{n}\n" for n in range(5)))
        for dest in ("at once", "later"):
            argv = (source, "-o", tmp_path / dest, "--store", store, "--shard-files", 3)
            argv = (*argv, "--keep-columns", "caption", "--hash", "sha256")
            manifest = tmp_path / f"{dest}.jsonl"
            if dest == "later":
                assert run_downloader(*argv[:-2]).returncode == 0
            done = run_downloader(*argv, "--manifest", manifest)
            assert (done.returncode, "only name" in done.stderr) == (0, False), done.stderr
            manifests.append([json.loads(line) for line in manifest.read_text().splitlines()])
    for row in (*manifests[0], *manifests[1]):
        assert row.pop("fetched_at").startswith("20")
    assert manifests[0] == manifests[1]
    assert manifests[1][4]["columns"] == {"caption": "c4"}
    assert len(server.requests) == 10


CASES = {
    "index": (
        ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg"],
        "1.jpg",
        [
            ("0.jpg", "00000", "000000000"),
            ("1.jpg", "00002", "000000001"),
            ("2.jpg", "00000", "000000002"),
            ("3.jpg", "00001", "000010000"),
            ("4.jpg", "00001", "000010001"),
        ],
    ),
    # The key of a name that fails at first is taken, too; long ones are cut.
    "name": (
        ["a.jpg", "a.png", "b.c.jpg", "a.gif", f"{'x' * 90}.jpg"],
        "a.jpg",
        [
            ("a.jpg", "00002", "a"),
            ("a.png", "00000", "a%~1"),
            ("b.c.jpg", "00000", "b%2Ec"),
            ("a.gif", "00001", "a"),
            (f"{'x' * 90}.jpg", "00001", f"{'x' * 62}%~"),
        ],
    ),
}


@pytest.mark.parametrize("key", CASES)
def test_manifest_names_shard_and_key(key: str, run_downloader: Run, tmp_path: Path) -> None:
    names, fails, expected = CASES[key]
    manifest = tmp_path / "manifest.jsonl"
    with Server({f"/f/{fails}": status(404)}, default=answer) as server:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{server.url}/f/{name}\n" for name in names))
        argv = (source, "-o", tmp_path / "dest", "--store", "tar", "--shard-files", 3, "--key", key)
        assert run_downloader(*argv, "--manifest", manifest).returncode == 1
        del server.routes[f"/f/{fails}"]
        assert run_downloader(*argv, "--manifest", manifest).returncode == 0
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    digits = 16  # of what a key that is cut ends with
    found = [(row["url"].partition("/f/")[2], row["shard"], row["key"]) for row in rows]
    assert [(*each[:2], each[2][:-digits] if len(each[2]) == 80 else each[2]) for each in found] == expected


def test_a_hash_that_is_asked_for_later_is_not_called_damage(run_downloader: Run, tmp_path: Path) -> None:
    """What is in shards is not read for it; nor does a run with warnings as errors say anything else."""
    source, manifest = tmp_path / "list.csv", tmp_path / "m.csv"
    with Server(default=answer) as server:
        source.write_text("url\n" + "".join(f"{server.url}/{n}.jpg\n" for n in range(3)))
        argv = (source, "-o", tmp_path / "dest", "--store", "tar", "-q")
        first = run_downloader(*argv, env={"PYTHONWARNINGS": "error"})
        assert (first.returncode, first.stderr) == (0, "")
        later = run_downloader(*argv[:-1], "--hash", "md5", "--manifest", manifest)
    assert later.returncode == 0
    assert "3 files have no md5" in later.stderr
    assert "--hash from the start" in later.stderr
    assert "downloader verify" not in later.stderr
