"""Exit code 2 says that nothing was started: every file is as it was before the run, byte for byte."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import Server, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def tree(*roots: Path) -> dict[str, bytes]:
    """Return every file below ``roots`` with its bytes, and every directory."""
    paths = [path for root in roots for path in (root, *root.rglob("*")) if path.exists()]
    # The lock says which process had it last.
    return {
        str(path): path.read_bytes() if path.is_file() and path.name != "lock" else b""
        for path in sorted(paths)
    }


def wrong_lists(at: Path, url: str) -> dict[str, list[str]]:
    """Make lists that cannot be read, below ``at``; return the arguments for each, by what is wrong."""
    rows = f"url,c\n{url}/get/a,x\n"
    made: dict[str, bytes] = {
        "semicolon.csv": rows.replace(",", ";").encode(),
        "utf16.csv": rows.encode("utf-16"),
        "utf16.txt": f"{url}/get/a\n".encode("utf-16"),
        "latin.csv": f"url,é\n{url}/get/a,x\n".encode("latin-1"),
        "cut.csv.gz": gzip.compress(rows.encode())[:5],
        "good.csv": rows.encode(),
        "parquet.txt": b"PAR1" + bytes(40),
    }
    for name, content in made.items():
        (at / name).write_bytes(content)
    pq.write_table(pa.table({"link": [f"{url}/get/a"]}), at / "link.parquet")
    (at / "lists").mkdir()
    (at / "lists" / "1.csv").write_text(rows)
    (at / "lists" / "2.csv").write_text(rows.replace("url", "link"))
    (at / "bag").mkdir()
    (at / "bag" / "bagit.txt").write_text("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")
    (at / "bag" / "fetch.txt").write_text(f"{url}/get/a - data/a\n")
    (at / "bag" / "manifest-sha256.txt").write_text("no checksum\n")
    found = {name: [str(at / name)] for name in made if name != "good.csv"}
    found |= {name: [str(at / name)] for name in ("link.parquet", "lists", "bag")}
    found["glob"] = [str(at / "lists" / "*.csv")]
    found["kept"] = [str(at / "good.csv"), "--keep-columns", "width"]
    found["checksum"] = [str(at / "good.csv"), "--checksum-column", "md5=sum"]
    return found


@pytest.mark.parametrize(("how", "every"), [(("--relist",), 2), (("--restart",), 3), ((), 3)])
def test_a_list_that_is_none_changes_nothing(
    how: tuple[str, ...], every: int, run_downloader: Run, tmp_path: Path
) -> None:
    """The journal of the job before, its manifest and its failures stay, and so does what was no DEST."""
    dest, beside, lists = tmp_path / "d", tmp_path / "beside", tmp_path / "lists"
    beside.mkdir(), lists.mkdir()
    own = ("--manifest", beside / "m.csv", "--failures", beside / "f.jsonl", "--report", beside / "r.json")
    with Server(files={"a": ok(b"a")}) as server:
        (lists / "l.csv").write_text(f"url,c\n{server.url}/get/a,x\n{server.url}/get/none,y\n")
        assert run_downloader(lists / "l.csv", "-o", dest, *own, "-q").returncode == 1
        before = tree(dest, beside)
        asked = len(server.requests)
        for what, source in list(wrong_lists(lists, server.url).items())[::every]:
            done = run_downloader(*source, "-o", dest, *own, *how, "-q")
            if not how and done.returncode == 4:  # the job goes on, and its list has broken off
                before = tree(dest, beside)
                continue
            assert done.returncode == 2, (what, done.stderr)
            assert tree(dest, beside) == before, what
        # A pipe can be read once only.
        wrong = (lists / "semicolon.csv").read_text()
        done = run_downloader("-", "--list-format", "csv", "-o", dest, *own, *how, "-q", input=wrong)
        assert done.returncode == 2
        assert tree(dest, beside) == before
        assert len(server.requests) == asked


def test_a_new_destination_is_not_made(run_downloader: Run, tmp_path: Path) -> None:
    lists, dest, report = tmp_path / "lists", tmp_path / "new" / "d", tmp_path / "r.json"
    lists.mkdir()
    report.write_text("of another job")
    with Server() as server:
        for what, source in list(wrong_lists(lists, server.url).items())[::3]:
            done = run_downloader(*source, "-o", dest, "--report", report, "-q")
            assert done.returncode == 2, (what, done.stderr)
        good = lists / "good.csv"
        assert run_downloader(good, "-o", dest, "--retry-failed", "-q").returncode == 2
        assert not (tmp_path / "new").exists()
        assert report.read_text() == "of another job"
        # Shards of another dataset are there.
        dest.mkdir(parents=True)
        (dest / "00000.tar").write_bytes(b"mine")
        assert run_downloader(good, "-o", dest, "--store", "tar", "-q").returncode == 2
        assert sorted(path.name for path in dest.iterdir()) == ["00000.tar"]
        # A pipe that is good is read from its beginning, what was looked at included.
        shared = tmp_path / "piped"
        done = run_downloader(
            "-", "--list-format", "csv", "-o", shared, "-q", input=f"sep=;\nurl;c\n{server.url}/get/x;1\n"
        )
        assert done.returncode == 1, done.stderr
        assert server.count("/get/x") >= 1


def test_relist_does_not_replace_a_stored_file_with_the_report(run_downloader: Run, tmp_path: Path) -> None:
    dest, urls = tmp_path / "d", tmp_path / "urls.txt"
    with Server(files={"r.json": ok(b"stored")}) as server:
        urls.write_text(f"{server.url}/get/r.json\n")
        assert run_downloader(urls, "-o", dest, "-q").returncode == 0
        before = tree(dest)
        done = run_downloader(urls, "-o", dest, "--relist", "--report", dest / "r.json", "-q")
        assert done.returncode == 2, done.stderr
        assert (dest / "r.json").read_bytes() == b"stored"
        assert before.keys() == tree(dest).keys()
