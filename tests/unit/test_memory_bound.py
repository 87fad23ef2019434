"""A file of some kB that stands for gigabytes ends with an error, and what follows has memory."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from downloader.sources.lists import binary_rows
from downloader.sources.lists.arrow_sizes import size_of
from downloader.sources.lists.columns import Wanted
from downloader.sources.lists.files import ListFile
from downloader.sources.lists.open_rows import Reading, open_rows

pyarrow = pytest.importorskip("pyarrow")

# A process of its own, with little memory.
READ = """
import sys
from downloader.errors import SourceError
from downloader.sources.lists import binary_rows
from downloader.sources.lists.columns import ALL, Wanted
from downloader.sources.lists.files import ListFile
from downloader.sources.lists.open_rows import Reading, open_rows

binary_rows._MEMORY = 256 << 20
file = ListFile(sys.argv[1], sys.argv[1].rpartition(".")[2])
rows = open_rows(file, "l", Reading(Wanted(keep=ALL)))
try:
    while (chunk := rows.read(1000)).taken:
        for number, index in zip(chunk.table.numbers, range(len(chunk.table.numbers))):
            print(number, chunk.table.faults.get(index, "read"))
except SourceError as error:
    print(error)
print(len(bytes(512 << 20)))
"""


def write(path: Path, table: Any, *, types: bool = True) -> None:
    from pyarrow import ipc, parquet

    if path.suffix == ".parquet":
        parquet.write_table(
            table, path, compression="zstd", store_schema=types, dictionary_pagesize_limit=1 << 28
        )
        return
    options = ipc.IpcWriteOptions(compression="zstd")
    with ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table)


def read(path: Path, table: object, *, types: bool = False) -> list[str]:
    write(path, table, types=types)
    assert path.stat().st_size < 20_000
    argv = [sys.executable, "-c", READ, path]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *lines, more = done.stdout.splitlines()
    assert more == str(512 << 20)
    return lines


BOUNDED = """
import pytest
from downloader.process.memory_bound import bounded_memory
with bounded_memory(64 << 20):
    assert len(bytes(32 << 20)) == 32 << 20
    with pytest.raises(MemoryError):
        bytes(128 << 20)
assert len(bytes(128 << 20)) == 128 << 20
"""


def test_what_a_step_allocates_is_bounded() -> None:
    """In a process of its own: one that frees much meanwhile may allocate as much more."""
    subprocess.run([sys.executable, "-c", BOUNDED], timeout=60, check=True)


def test_value_of_a_dictionary_that_each_row_repeats(tmp_path: Path) -> None:
    repeated = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 1000, pyarrow.int32()), pyarrow.array(["c" * 2_000_000])
    )
    urls = pyarrow.array([f"http://h/{at}" for at in range(1000)])
    (said,) = read(tmp_path / "l.parquet", pyarrow.table({"url": urls, "caption": repeated}))
    assert said == (
        "l: its rows behind row 0 take more than 256.0 MiB of memory; write it without what is that large"
    )


def runs(ends: list[int], values: Any) -> Any:
    return pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array(ends, pyarrow.int32()), values)


def every_encoding(rows: int, text: str) -> dict[str, Any]:
    """Return columns that have one ``text`` and in each of their ``rows`` name it."""
    once = pyarrow.array([text])
    indices = pyarrow.array([0] * rows, pyarrow.int32())
    repeated = pyarrow.DictionaryArray.from_arrays(indices, once)
    run = runs([rows], once)
    bounds = pyarrow.array(range(rows + 1), pyarrow.int32())
    keys = pyarrow.array(["k"] * rows)
    codes = pyarrow.array([0] * rows, pyarrow.int8())
    found = {
        "run": run,
        "struct of dictionary": pyarrow.StructArray.from_arrays([repeated], ["a"]),
        "struct of run": pyarrow.StructArray.from_arrays([run], ["a"]),
        "list of dictionary": pyarrow.ListArray.from_arrays(bounds, repeated),
        "list of run": pyarrow.ListArray.from_arrays(bounds, run),
        "lists of fixed length": pyarrow.FixedSizeListArray.from_arrays(repeated, 1),
        "map": pyarrow.MapArray.from_arrays(bounds, keys, repeated),
        "sparse union": pyarrow.UnionArray.from_sparse(codes, [repeated]),
        "dense union": pyarrow.UnionArray.from_dense(codes, indices, [once]),
        "dictionary of lists": pyarrow.DictionaryArray.from_arrays(
            indices, pyarrow.ListArray.from_arrays([0, 1], once)
        ),
    }
    if hasattr(pyarrow, "string_view"):
        view = len(text).to_bytes(4, "little") + text[:4].encode() + bytes(8)
        buffers = [None, pyarrow.py_buffer(view * rows), pyarrow.py_buffer(text.encode())]
        found["view"] = pyarrow.Array.from_buffers(pyarrow.string_view(), rows, buffers)
        ones = pyarrow.array([1] * rows, pyarrow.int32())
        found["overlapping lists"] = pyarrow.ListViewArray.from_arrays(indices, ones, once)
    return found


@pytest.mark.parametrize("encoding", every_encoding(1, "12345678901234567890"))
def test_value_that_every_row_names_is_read_some_rows_at_a_time(encoding: str, tmp_path: Path) -> None:
    rows = 200
    urls = pyarrow.array([f"http://h/{at}" for at in range(rows)])
    column = every_encoding(rows, "c" * 2_000_000)[encoding]
    said = read(tmp_path / "l.arrow", pyarrow.table({"url": urls, "k": column}))
    assert said == [f"{row} read" for row in range(1, rows + 1)]


def test_list_of_a_dictionary_in_parquet_is_read_some_rows_at_a_time(tmp_path: Path) -> None:
    urls = pyarrow.array([f"http://h/{at}" for at in range(200)])
    column = every_encoding(200, "c" * 2_000_000)["list of dictionary"]
    said = read(tmp_path / "l.parquet", pyarrow.table({"url": urls, "k": column}), types=True)
    assert said == [f"{row} read" for row in range(1, 201)]


def test_row_of_very_many_values_of_no_bytes_fails_alone(tmp_path: Path) -> None:
    many = 1 << 30
    nulls = pyarrow.ListArray.from_arrays(
        pyarrow.array([0, 1, many, many], pyarrow.int32()), pyarrow.nulls(many)
    )
    table = pyarrow.table({"url": ["http://h/a", "http://h/b", "http://h/c"], "k": nulls})
    assert read(tmp_path / "l.arrow", table) == [
        "1 read",
        "2 it has 8.0 GiB, and 64.0 MiB is the limit",
        "3 read",
    ]


def weight(value: object) -> int:
    """Return 8 for each value, and the bytes of texts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return 8 + sum(map(weight, value))
    return 8 + (len(value.encode()) if isinstance(value, str) else 0)


TEXTS = ["a" * 30, "bcd", None, "é" * 9, "", "x" * 200]


def wrapped(column: Any) -> dict[str, Any]:
    """Return columns of every type that has ``column``, of at least five values, in it."""
    count = len(column)
    at = pyarrow.array([0, count - 1, None, 0, 1], pyarrow.int16())
    codes = pyarrow.array([0, 1, 0, 0], pyarrow.int8())
    numbers = pyarrow.array(range(count))
    keys = numbers.cast("string")
    bounds = pyarrow.array([0, 1, 1, 2, count], pyarrow.int32())
    found = {
        "list": pyarrow.ListArray.from_arrays([0, 0, 2, 3, count], column),
        "large": pyarrow.LargeListArray.from_arrays([1, 1, 2, 2, count], column),
        "fixed": pyarrow.FixedSizeListArray.from_arrays(column.slice(0, 4), 1),
        "struct": pyarrow.StructArray.from_arrays([column, numbers], ["a", "b"]),
        "dictionary": pyarrow.DictionaryArray.from_arrays(at, column),
        "map": pyarrow.MapArray.from_arrays(bounds, keys, column),
        "dense": pyarrow.UnionArray.from_dense(
            codes, pyarrow.array([0, 0, 1, count - 1], pyarrow.int32()), [column, pyarrow.array([5])]
        ),
    }
    if not pyarrow.types.is_run_end_encoded(column.type):
        # pyarrow itself takes other values of runs in a slice of a sparse union.
        found["runs"] = runs([at * 3 + 2 for at in range(count)], column)
        found["sparse"] = pyarrow.UnionArray.from_sparse(
            pyarrow.array([at % 2 for at in range(count)], pyarrow.int8()), [column, numbers]
        )
    if hasattr(pyarrow, "ListViewArray"):
        starts, lengths = [0, 0, 1, count - 1], [count, 2, count - 1, 0]
        found["views"] = pyarrow.ListViewArray.from_arrays(
            pyarrow.array(starts, pyarrow.int32()), pyarrow.array(lengths, pyarrow.int32()), column
        )
        found["large views"] = pyarrow.LargeListViewArray.from_arrays(starts, lengths, column)
    return found


@pytest.mark.parametrize("text", ["string", "large_string", "string_view"])
def test_size_of_rows_is_their_own_whatever_encodes_them(text: str) -> None:
    if not hasattr(pyarrow, text):
        pytest.skip("a type of later versions")
    for outer, column in wrapped(pyarrow.array(TEXTS, getattr(pyarrow, text)())).items():
        inner = wrapped(column) if len(column) >= 5 else {}
        for name, each in {"": column, **inner}.items():
            for start, count in ((0, len(each)), (1, len(each) - 1), (len(each) - 1, 1), (1, 0)):
                part = each.slice(start, count)
                assert size_of(part, 1 << 30) == weight(part.to_pylist()) - 8, (name, outer, start)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
@pytest.mark.parametrize("text", ["dictionary", "string_view"])
def test_size_of_a_row_is_not_that_of_all(
    text: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary_rows, "_LONGEST", 1 << 20)
    monkeypatch.setattr(binary_rows, "_LARGE", 1 << 18)
    urls = pyarrow.array([f"http://h/{at:07}{'p' * 1000}" for at in range(2_000)])
    if text == "string_view" and (form == "parquet" or not hasattr(pyarrow, text)):
        pytest.skip("not in this format or version")
    column = urls.dictionary_encode() if text == "dictionary" else urls.cast(text)
    path = tmp_path / f"l.{form}"
    write(path, pyarrow.table({"url": column}))
    with closing(open_rows(ListFile(str(path), form), "l", Reading(Wanted()))) as rows:
        chunk = rows.read(100)
    assert chunk.table.columns["url"] == urls.slice(0, 100).to_pylist()
    assert not chunk.table.faults


def test_one_row_that_is_too_long_fails_alone(tmp_path: Path) -> None:
    urls = ["http://h/a", "http://h/" + "b" * (65 << 20), "http://h/c"]
    assert read(tmp_path / "l.parquet", pyarrow.table({"url": urls})) == [
        "1 read",
        "2 it has 65.0 MiB, and 64.0 MiB is the limit",
        "3 read",
    ]
