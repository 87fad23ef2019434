"""What members of samples are called: nothing that readers execute, and nothing that is too long."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from harness import environment
from servers import Request, Server, Step, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]

EXECUTED = ["pickle", "PKL", "pyd", "pt", "pth", "npy", "npz", "joblib"]
DECODE = """
import sys, webdataset
print(sum(1 for sample in webdataset.WebDataset(sys.argv[1], shardshuffle=False).decode()))
"""


class _Planted:
    """What a server sends: unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self._path), "w")


def names_in(path: Path) -> list[str]:
    with tarfile.open(path) as shard:
        return [name for name in shard.getnames() if not name.endswith(".json")]


def decode(shard: Path) -> subprocess.CompletedProcess[str]:
    """Read a shard with webdataset, which decodes what it knows."""
    argv = [sys.executable, "-c", DECODE, str(shard)]
    return subprocess.run(argv, capture_output=True, text=True, env=environment(), check=False, timeout=60)


def test_content_gets_no_extension_that_a_reader_executes(run_downloader: Run, tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    planted = tmp_path / "planted"
    body = pickle.dumps(_Planted(planted))

    def answer(request: Request) -> Sequence[Step]:
        return ok(body, "Content-Type: application/x-python-pickle")

    with Server(default=answer) as server:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{server.url}/f/x.{ext}\n" for ext in EXECUTED))
        argv = (source, "--store", "tar")
        assert run_downloader(*argv, "-o", tmp_path / "safe").returncode == 0
        unsafe = (*argv, "-o", tmp_path / "unsafe", "--unsafe-extensions")
        assert run_downloader(*unsafe, "--limit", 1).returncode == 0
        assert {name.partition(".")[2] for name in names_in(tmp_path / "safe" / "00000.tar")} == {"bin"}
        assert names_in(tmp_path / "unsafe" / "00000.tar") == ["000000000.pickle"]
        assert decode(tmp_path / "safe" / "00000.tar").stdout == f"{len(EXECUTED)}\n"
        assert not planted.exists()
        decode(tmp_path / "unsafe" / "00000.tar")
        assert planted.exists(), "or this test shows nothing"
        changed = run_downloader(*argv, "-o", tmp_path / "unsafe")
        assert (changed.returncode, "--unsafe-extensions" in changed.stderr) == (2, True)


def test_member_of_a_list_is_not_executed_either(run_downloader: Run, tmp_path: Path) -> None:
    source = tmp_path / "list.csv"
    source.write_text("url,caption\nhttp://127.0.0.1:9/x,y\n")
    done = run_downloader(source, "-o", tmp_path / "d", "--store", "tar", "--member", "PKL=caption")
    assert done.returncode == 2
    assert "is executed by readers of samples" in done.stderr
    assert not (tmp_path / "d").exists()


def test_longest_key_and_extensions_fit(run_downloader: Run, tmp_path: Path) -> None:
    """A name of 100 bytes is the longest: KEY.content.EXT, where EXT is that of a member, too."""
    extension = "abcdefghijkl"
    with Server(default=lambda request: ok(b"x")) as server:
        source = tmp_path / "list.csv"
        source.write_text(f"url,caption\n{server.url}/f/{'n' * 150}.{extension},a\n")
        argv = (source, "-o", tmp_path / "d", "--store", "tar", "--key", "name")
        done = run_downloader(*argv, "--member", f"{extension}=caption")
    assert done.returncode == 0, done.stderr
    content, member = names_in(tmp_path / "d" / "00000.tar")
    assert (len(member), content.partition(".")[2]) == (80 + 13, "content.bin")


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_kept_columns_of_a_job_cannot_change(store: str, run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=lambda request: ok(b"x")) as server:
        source = tmp_path / "list.csv"
        source.write_text(f"url,a,b\n{server.url}/f/1,a,b\n{server.url}/f/2,a,b\n")
        argv = (source, "-o", tmp_path / "d", "--store", store, "--shard-files", 1)
        assert run_downloader(*argv, "--keep-columns", "a", "--limit", 1).returncode == 0
        for other in ((), ("--keep-columns", "a,b"), ("--keep-columns", "all")):
            done = run_downloader(*argv, *other)
            assert done.returncode == 2, done.stderr
            assert "was begun with --keep-columns a; give the same, or --restart" in done.stderr
        assert len(server.requests) == 1
        done = run_downloader(*argv, "--keep-columns", "a", "--json")
        assert (done.returncode, json.loads(done.stdout)["stored"]) == (0, 1)
