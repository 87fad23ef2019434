"""Each of the tool's own files of a job with shards is damaged between two runs, as by a power cut."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Server, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]

DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: os.truncate(path, 0),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbage": lambda path: path.write_bytes(b"\xff\xfe\x01 garbage"),
}


@pytest.mark.parametrize(
    "how", ["empty", *(pytest.param(how, marks=pytest.mark.slow) for how in DAMAGES if how != "empty")]
)
@pytest.mark.parametrize("store", ["tar", pytest.param("parquet", marks=pytest.mark.slow)])
@pytest.mark.timeout(300)
def test_damage_is_mended_or_named(store: str, how: str, run_downloader: Run, tmp_path: Path) -> None:
    """Where a run goes on with it, all is there at its end; where not, one line names a file."""
    begun, dest = tmp_path / "begun", tmp_path / "d"
    with Server(default=ok(b"x")) as server:
        source = tmp_path / "l.txt"
        source.write_text("".join(f"{server.url}/{n}.jpg\n" for n in range(30)))
        options = ("--store", store, "--shard-files", 10)
        assert run_downloader(source, "-o", begun, *options, "--limit", 20).returncode == 0
        own = sorted(
            path.relative_to(begun) for path in (begun / ".downloader").rglob("*") if path.is_file()
        )
        assert len(own) >= 5
        for path in own:
            shutil.copytree(begun, dest)
            DAMAGES[how](dest / path)
            done = run_downloader(source, "-o", dest, *options)
            assert done.returncode in (0, 2, 4), (path, done)
            assert "defect" not in done.stderr, (path, done)
            if done.returncode == 0:
                assert run_downloader("verify", dest).returncode == 0, path
            else:
                # By its own name, or it is the record of what stands in DEST.
                assert str(dest) in done.stderr, (path, done)
            shutil.rmtree(dest)
