"""Files of shards that somebody has forged: nothing else is touched, and what is odd is named."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness import report_with
from servers import Server, ok

from downloader.files.directory import open_home
from downloader.sinks.shards.records import MOST_FORMER, OtherFile, read_record, write_record

Run = Callable[..., "subprocess.CompletedProcess[str]"]
THESIS = b"my only thesis"


@pytest.fixture
def command(run_downloader: Run, tmp_path: Path) -> Any:
    """Yield a function that runs a job of two shards in ``d``, and returns how it ended."""
    with Server(default=lambda request: ok(request.target.encode())) as server:
        source = tmp_path / "l.txt"
        source.write_text("".join(f"{server.url}/{number}.bin\n" for number in range(8)))

        def run(store: str, *more: object) -> subprocess.CompletedProcess[str]:
            argv = (source, "-o", tmp_path / "d", "--store", store, "--shard-files", 4, "--json")
            return run_downloader(*argv, *more, timeout=60)

        yield run


@pytest.mark.parametrize("existing", ["replace", "fail"])
def test_record_that_names_a_file_of_the_users(
    command: Any, run_downloader: Run, tmp_path: Path, existing: str
) -> None:
    """As a file of an attempt that was killed, it would be removed when the shard is published anew."""
    dest = tmp_path / "d"
    report_with(command("tar", "--existing", existing))
    (dest / "thesis.txt").write_bytes(THESIS)
    home = open_home(dest / ".downloader")
    record = read_record(home, 1)
    assert record is not None
    forged = OtherFile("thesis.txt", hashlib.md5(THESIS).hexdigest(), len(THESIS))
    write_record(home, 1, msgspec.structs.replace(record, former=[forged]))
    (dest / "00001.tar").unlink()
    assert run_downloader("verify", dest).returncode == 1
    command("tar", "--existing", existing)
    assert (dest / "thesis.txt").read_bytes() == THESIS


def test_record_with_more_files_than_attempts_leave_is_damaged(
    command: Any, run_downloader: Run, tmp_path: Path
) -> None:
    """A few bytes each, they would take gigabytes of memory."""
    report_with(command("tar"))
    home = open_home(tmp_path / "d" / ".downloader")
    record = read_record(home, 1)
    assert record is not None
    many = [OtherFile("00001_stats.json")] * (MOST_FORMER + 1)
    write_record(home, 1, msgspec.structs.replace(record, former=many))
    done = run_downloader("verify", tmp_path / "d")
    assert done.returncode == 1
    assert ".downloader/published/00001" in done.stdout + done.stderr


@pytest.mark.parametrize("column", ["key", "bytes"])
@pytest.mark.parametrize("kind", ["int64", "list"])
def test_parquet_shard_with_columns_of_other_types(
    command: Any, run_downloader: Run, tmp_path: Path, column: str, kind: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    dest = tmp_path / "d"
    report_with(command("parquet"))
    table = parquet.read_table(dest / "00000.parquet")
    odd = [1] * len(table) if kind == "int64" else [[b"x"]] * len(table)
    place = table.column_names.index(column)
    parquet.write_table(table.set_column(place, column, pyarrow.array(odd)), dest / "00000.parquet")
    # So that nothing says what was published.
    for path in (dest / ".downloader/published/00000", dest / "00000_stats.json"):
        path.unlink()
    done = run_downloader("verify", dest)
    assert done.returncode == 1, done.stderr
    assert "0.bin\n" in done.stdout


@pytest.mark.parametrize("row", [[1], "x", None])
def test_row_that_is_none(command: Any, tmp_path: Path, row: object) -> None:
    dest = tmp_path / "d"
    report_with(command("tar"))
    (dest / ".downloader/published/00001").unlink()
    (dest / "00001.parquet").unlink()
    (dest / "00001.jsonl").write_text(f"{json.dumps(row)}\n")
    done = command("tar", "--manifest", tmp_path / "m.jsonl")
    assert "defect" not in done.stderr
    assert (done.returncode, len((tmp_path / "m.jsonl").read_text().splitlines())) == (0, 8), done.stderr
