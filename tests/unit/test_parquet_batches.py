"""Parquet files of shards are read in the thread that asks for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pyarrow = pytest.importorskip("pyarrow")

# A process of its own: the threads of pyarrow stay until the end of one.
READ = """
import sys
from pathlib import Path
from pyarrow import parquet
from downloader.sinks.shards.parquet_batches import batches

def threads():
    # The thread of the allocator begins when it likes.
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum("jemalloc" not in name for name in names)

before = threads()
with open(sys.argv[1], "rb") as file:
    rows = sum(batch.num_rows for batch in batches(file, None, vouched=True))
print(rows, threads() - before)
"""


def test_no_thread_is_left_that_holds_the_file_while_the_interpreter_ends(tmp_path: Path) -> None:
    """pyarrow's threads let go of a file of Python's when they like, and abort a process that ends then."""
    from pyarrow import parquet

    columns = {str(number): [f"{row}" for row in range(600)] for number in range(8)}
    parquet.write_table(
        pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=100, use_dictionary=False
    )
    argv = [sys.executable, "-c", READ, tmp_path / "a.parquet"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["600", "0"]


def test_a_dictionary_is_refused_whoever_vouches_for_the_file(tmp_path: Path) -> None:
    """6 kB can stand for gigabytes; a record that vouches for them may be of whoever made the file."""
    from pyarrow import parquet

    from downloader.sinks.shards.parquet_batches import batches

    indices = pyarrow.array([0] * 20_000, pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["e" * 1_000_000]))
    parquet.write_table(pyarrow.table({"etag": column}), tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    for vouched in (True, False):
        with (tmp_path / "a.parquet").open("rb") as file, pytest.raises(ValueError, match="dictionary"):
            next(batches(file, None, vouched=vouched))
