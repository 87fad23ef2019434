"""The types of kept columns: the same in every table of a job, as others read them together."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from harness import environment
from list_writer import write
from pyarrow import dataset, parquet
from servers import Request, Server, Step, ok

from downloader.cluster.driver.retry import RetryItems, plan_again
from downloader.cluster.node.task import PlanAt, SliceTask, run_slice
from downloader.cluster.plan import configs
from downloader.cluster.plan.plan import PlanDirectory
from downloader.config.config import Config
from downloader.sinks.shards.options import shard_options

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COUNT = 12
QUICK = ("--shard-files", 3, "--keep-columns", "all", "--retries", 0, "--progress", "none")
TYPES = {"w": "int64", "n": "double", "cap": "string", "ok": "bool", "u": "uint64", "b": "string"}


def answer(request: Request) -> Sequence[Step]:
    return ok(hashlib.sha256(request.target.encode()).digest(), "Content-Type: image/jpeg")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=answer) as made:
        yield made


def declared(url: str) -> pa.Table:
    """A list whose shards of three rows have different values: none, only whole numbers, NaN."""
    shard = [number // 3 for number in range(COUNT)]
    moment = pa.scalar(0, pa.timestamp("s", "UTC")).as_py()
    return pa.table(
        {
            "url": [f"{url}/{number}.jpg" for number in range(COUNT)],
            "w": pa.array([None if at == 1 else 2**60 + at for at in shard], pa.int64()),
            "n": pa.array([float("nan") if at == 1 else float(at) for at in shard], pa.float32()),
            "cap": pa.array([None if at == 0 else f"c{at}" for at in shard]).dictionary_encode(),
            "ok": pa.array([None if at == 0 else True for at in shard]),
            "u": pa.array([None if at == 2 else at for at in shard], pa.uint64()),
            "b": pa.array([None if at == 0 else b"\x93NUMPY\xff" for at in shard]),
            "t": pa.array([None if at == 0 else moment for at in shard], pa.timestamp("us", "UTC")),
        }
    )


def tables(dest: Path) -> list[Path]:
    return sorted(path for path in dest.glob("*.parquet") if not path.name.endswith("_items.parquet"))


def read(dest: Path, count: int = COUNT // 3) -> list[dict[str, Any]]:
    """Return the rows of ``count`` tables; the schema is the same in all of them."""
    schemas = [parquet.read_schema(path) for path in tables(dest)]
    assert len(schemas) == count
    assert all(schema == schemas[0] for schema in schemas)
    rows: list[dict[str, Any]] = dataset.dataset(list(map(str, tables(dest)))).to_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["key"]))


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_types_are_those_that_the_list_declares(
    store: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    parquet.write_table(declared(server.url), tmp_path / "l.parquet")
    dest, members = tmp_path / "d", ("--member", "npy=b,num=n,time=t") if store == "tar" else ()
    argv = (tmp_path / "l.parquet", "-o", dest, "--store", store, *QUICK, *members)
    # The second run knows of the first shard only what the journal says.
    assert run_downloader(*argv, "--limit", 3).returncode == 0
    done = run_downloader(*argv, "--manifest", tmp_path / "m.parquet")
    assert done.returncode == 0, done.stderr
    rows = read(dest)
    given = declared(server.url).to_pylist()
    for table in (*tables(dest)[:1], *dest.glob("00000_items.parquet"), tmp_path / "m.parquet"):
        schema = parquet.read_schema(table)
        assert {name: str(schema.field(name).type) for name in TYPES} == TYPES, table
        assert "list.other" not in schema.names
    for name in ("w", "cap", "ok", "u"):
        assert [row[name] for row in rows] == [row[name] for row in given], name
    assert [row["n"] for row in rows] == [None if 3 <= at < 6 else float(at // 3) for at in range(COUNT)]
    duckdb = pytest.importorskip("duckdb")
    files = str(list(map(str, tables(dest))))
    query = f"SELECT count(w), sum(n), bool_and(ok), count(*) FROM read_parquet({files})"
    assert duckdb.sql(query).fetchall() == [(9, 15.0, True, COUNT)]
    for library in ("pandas", "polars"):
        frame = pytest.importorskip(library).read_parquet(list(map(str, tables(dest))))
        assert (len(frame), int(frame["u"].sum())) == (COUNT, 3 * (0 + 1 + 3))
    if store == "tar":
        with tarfile.open(dest / "00001.tar") as shard:
            content = {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
        key = min(content).partition(".")[0]
        assert content[f"{key}.npy"] == b"\x93NUMPY\xff"
        assert content[f"{key}.time"] == b"1970-01-01T00:00:00Z"
        assert f"{key}.num" not in content, "NaN is no value"


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_types_of_json_are_those_of_its_beginning(
    store: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    """What is found later and does not fit is in a column of its own, and lost nowhere."""
    seen = {"int": 1, "float": 0.5, "mixed": 1, "text": "a", "none": None, "list.other": "x"}
    later = {"int": 0.5, "float": 2**60, "mixed": "b", "text": 7, "none": 3, "new": {"a": [1]}}
    rows: list[dict[str, Any]] = [{**seen, "mixed": "b" if at else 1} for at in range(9)]
    rows += [{**later, "w": at} for at in range(3)]
    rows += [{**later, "w": at, "list.other": "x"} for at in range(3)]
    for at, row in enumerate(rows):
        row["url"] = f"{server.url}/{at}.jpg"
        row["pad"] = "x" * 40_000  # 256 KiB are looked at
    columns = "int,float,mixed,text,none,new,w,list.other"
    (tmp_path / "lists").mkdir()
    write(tmp_path / "lists" / "a.jsonl", rows[:-3])
    argv: tuple[object, ...] = (tmp_path / "lists", "-o", tmp_path / "d", "--store", store)
    argv += (*QUICK[:2], *QUICK[4:], "--keep-columns", columns)
    assert run_downloader(*argv).returncode == 0
    write(tmp_path / "lists" / "b.jsonl", rows[-3:])
    done = run_downloader(*argv, "--manifest", tmp_path / "m.parquet")
    assert done.returncode == 0, done.stderr
    first, *_, last = read(tmp_path / "d", COUNT // 3 + 1)
    assert {name: first[name] for name in ("int", "float", "mixed", "text", "none", "list.other_")} == {
        **{"int": 1, "float": 0.5, "mixed": "1", "text": "a", "none": None, "list.other_": "x"}
    }
    assert first["list.other"] is None
    assert [last[name] for name in ("int", "float", "mixed", "text", "none", "new", "w")] == [
        *(None, None, '"b"', "7", "3", '{"a":[1]}', "2")
    ]
    assert json.loads(last["list.other"]) == {"int": 0.5, "float": 2**60}
    if store == "tar":
        stated = {row["key"]: row for row in metadata(tmp_path / "d")}
        assert stated[first["key"]] | {"mixed": "1", "list.other_": "x"} == stated[first["key"]]
        same = {"int": None, "float": None, "mixed": '"b"', "text": "7", "none": "3", "new": '{"a":[1]}'}
        assert stated[last["key"]] | same == stated[last["key"]]
        assert json.loads(stated[last["key"]]["list.other"]) == {"int": 0.5, "float": 2**60}
    manifest = parquet.read_table(tmp_path / "m.parquet")
    assert manifest["int"].to_pylist()[-1] == 0.5


def metadata(dest: Path) -> list[dict[str, Any]]:
    """Return what each ``KEY.json`` in the tars of ``dest`` has."""
    found = []
    for path in sorted(dest.glob("*.tar")):
        with tarfile.open(path) as shard:
            found += [
                json.load(shard.extractfile(member))  # type: ignore[arg-type]
                for member in shard
                if member.name.endswith(".json")
            ]
    return found


def test_metadata_in_tars_has_the_types_of_the_job(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    """Readers of tars take the types of the first samples: 6.5 was 6 after whole numbers, in silence."""
    rows = [
        {
            "url": f"{server.url}/{at}.jpg",
            "late": at if at < COUNT // 2 else at + 0.5,
            "mixed": str(at) if at % 2 else at,
            "huge": 2**64 - 1 if at else 1,
            "nested": {"a": at} if at % 2 else at % 3 > 0,
            "url_": 0.5 if at % 2 else 1,
            "status": at if at % 2 else 0.5,
        }
        for at in range(COUNT)
    ]
    write(tmp_path / "l.jsonl", rows)
    done = run_downloader(tmp_path / "l.jsonl", "-o", tmp_path / "d", "--store", "tar", *QUICK)
    assert done.returncode == 0, done.stderr
    found = metadata(tmp_path / "d")
    assert len(found) == COUNT
    types = {
        name: {type(row[name]) for row in found}
        for name in ("late", "mixed", "huge", "url_", "list.status")
    }
    assert types == {
        "late": {float},
        "mixed": {str},
        "huge": {int},
        "url_": {float},
        "list.status": {float},
    }
    assert {str(row["nested"]) for row in found} == {
        *("false", "true"),
        *(str({"a": at}) for at in range(1, COUNT, 2)),
    }
    table = {row["key"]: row for row in read(tmp_path / "d")}
    for row in found:
        beside = table[row["key"]]
        names = ("late", "mixed", "huge", "url_", "list.status")
        assert [row[name] for name in names] == [beside[name] for name in names]
        nested = row["nested"]
        assert beside["nested"] == (
            nested if isinstance(nested, str) else json.dumps(nested).replace(" ", "")
        )
    assert not any("list.other" in row for row in found)


SLICES = """
import json, sys
from downloader.cluster.plan.plan import Plan, PlanDirectory
from downloader.config.config import Config
from downloader.cluster.driver.slicer import SlicerJob, slice_source

config = Config.decode(sys.stdin.buffer.read())
directory = PlanDirectory(config.journal_root)
directory.open(Plan("", config.source, config.output, config.slice_files, 0), restart=False)
last = SlicerJob(config.encode(), b"k" * 32)
slice_source(config, last, lambda **event: None)
"""


def test_slices_have_the_types_of_their_job(server: Server, tmp_path: Path) -> None:
    parquet.write_table(declared(server.url), tmp_path / "l.parquet")
    dest = tmp_path / "d"
    dest.mkdir()
    config = Config(
        source=str(tmp_path / "l.parquet"),
        output=str(dest),
        store="tar",
        store_options={"shard_files": 3},
        source_options={"keep_columns": "all"},
        slice_files=6,
    )
    # A feeder is forked of a process in which nothing is patched.
    argv = [sys.executable, "-c", SLICES]
    subprocess.run(argv, input=config.encode(), env=environment(), check=True, timeout=60)
    directory = PlanDirectory(str(dest))
    slices = {slice_.name: slice_ for slice_ in directory.slices()}
    (again,) = plan_again(
        directory, [RetryItems(slices["00000001"], {0: None})], slices, shard_options(config), 6
    )
    assert {slice_.types for slice_ in (*slices.values(), again)} == {slices["00000000"].types} != {""}
    settings = configs.for_slices(config, 1, 0, 0).encode()
    for slice_ in (*slices.values(), again):
        task = SliceTask(
            slice_.name, "p", PlanAt(str(dest)), str(tmp_path), 0.0, slice_.items, types=slice_.types
        )
        assert run_slice(task, settings, None, "here").how == "done"
    schemas = [parquet.read_schema(path) for path in dest.rglob("*.parquet")]
    assert len(schemas) == 5
    assert all(schema == schemas[0] for schema in schemas)
    assert {name: str(schemas[0].field(name).type) for name in TYPES} == TYPES


def test_manifest_in_csv_is_read_alike_by_all(server: Server, run_downloader: Run, tmp_path: Path) -> None:
    texts = ["a\rb", "a\nb", "\r\n", 'a "b", c', "plain", ""]
    rows = [{"url": f"{server.url}/{at}", "text": text, "name": f"{at}"} for at, text in enumerate(texts)]
    for row in rows:
        row |= {"columns.name": "other", "columns": "c"}
    source, manifest = write(tmp_path / "l.jsonl", rows), tmp_path / "m.csv"
    done = run_downloader(
        source, "-o", tmp_path / "d", "--manifest", manifest, "--keep-columns", "all", "-q"
    )
    assert done.returncode == 0, done.stderr
    with open(manifest, newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["text"] for line in lines] == texts
    assert {line["columns.name"] for line in lines} == {"other"}
    assert [line["columns.columns.name"] for line in lines] == [row["name"] for row in rows]
    for library in ("pandas", "polars"):
        frame = pytest.importorskip(library).read_csv(manifest)
        assert (len(frame), len(set(frame.columns))) == (len(texts), len(lines[0])), library
        assert frame["text"][0] == "a\rb"
    assert pytest.importorskip("duckdb").sql(f"SELECT text FROM '{manifest}'").fetchall()[0] == ("a\rb",)
    # Our own reader takes it for a list.
    again = run_downloader(
        *(manifest, "-o", tmp_path / "d2", "--manifest", tmp_path / "m.jsonl", "-q"),
        *("--keep-columns", "text", "--size-column", "size"),
    )
    assert again.returncode == 0, again.stderr
    found = list(map(msgspec.json.decode, (tmp_path / "m.jsonl").read_bytes().splitlines()))
    assert [row["columns"]["text"] for row in found] == texts
