"""Shards are read by the programs that people read them with; each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from harness import environment
from shard_parts import Example, Shards, example, examples, failed

from downloader.files.directory import open_home
from downloader.sinks.shards.indexes import write_indexes

SAMPLES = {number: examples(number, 12, 2000) for number in range(3)}
EVERY = [sample for samples in SAMPLES.values() for sample in samples]
for sample in EVERY:
    sample.extension = "bin"  # readers decode what is called .jpg


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("tars"))


@pytest.fixture(scope="module")
def parquets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("parquets"), store="parquet")


def publish(root: Path, **options: Any) -> Path:
    """Publish shards of which the second is cut into several files."""
    for number, samples in SAMPLES.items():
        shards = Shards(root, max_size=20_000 if number == 1 else 1 << 30, **options)
        shards.publisher.publish(shards.job(number, samples, [failed(number, len(samples))]))
        shards.publisher.close()
    write_indexes(str(root), open_home(shards.home), SAMPLES, store=options.get("store", "tar"))
    assert (root / "00001-1.tar").exists() or "store" in options
    return root


def read(program: str, root: Path, tmp_path: Path, **extra: str) -> Any:
    """Return what ``program`` prints as JSON; ``root`` is its argument."""
    env = environment(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hf"), WIDS_CACHE=str(tmp_path), **extra)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), str(root)],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def expected(samples: list[Example]) -> list[list[str]]:
    """Return key, content in hexadecimal, caption and URL of each sample."""
    return [
        [sample.key, sample.content.hex(), sample.members["txt"].decode(), sample.metadata()["url"]]
        for sample in samples
    ]


def test_webdataset(tars: Path, tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    found = read(
        """
        import glob, json, sys
        import webdataset
        names = sorted(glob.glob(sys.argv[1] + "/*.tar"))
        rows = [
            [s["__key__"], s["bin"].hex(), s["txt"].decode(), json.loads(s["json"])["url"]]
            for s in webdataset.WebDataset(names, shardshuffle=False)
        ]
        print(json.dumps(rows))
        """,
        tars,
        tmp_path,
    )
    assert sorted(found) == expected(EVERY)


def test_wids(tars: Path, tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    # wids imports torch, and uses of it here only the base class.
    torch = tmp_path / "site" / "torch"
    (torch / "utils").mkdir(parents=True)
    for name in ("__init__.py", "distributed.py", "utils/__init__.py"):
        (torch / name).write_text("")
    (torch / "utils" / "data.py").write_text(
        "import typing\nclass Dataset(typing.Generic[typing.TypeVar('T')]): pass\nclass Sampler: pass\n"
    )
    found = read(
        """
        import json, sys
        import wids
        data = wids.ShardListDataset(sys.argv[1] + "/shards.json", keep=True, transformations=[])
        rows = []
        for index in range(len(data)):
            s = data[index]
            url = json.load(s[".json"])["url"]
            rows.append([s["__key__"], s[".bin"].read().hex(), s[".txt"].read().decode(), url])
        print(json.dumps(rows))
        """,
        tars,
        tmp_path,
        PYTHONPATH=str(tmp_path / "site"),
    )
    assert found == expected(EVERY)


def test_datasets_reads_tars(tars: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    found = read(
        """
        import json, sys
        from datasets import load_dataset
        data = load_dataset("webdataset", data_files=sys.argv[1] + "/*.tar", split="train")
        print(json.dumps([[s["__key__"], s["bin"].hex(), s["txt"], s["json"]["url"]] for s in data]))
        """,
        tars,
        tmp_path,
    )
    assert sorted(found) == expected(EVERY)


def test_datasets_reads_parquet(parquets: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    found = read(
        """
        import json, sys
        from datasets import load_dataset
        data = load_dataset("parquet", data_files=sys.argv[1] + "/*[0-9].parquet", split="train")
        print(json.dumps([[s["key"], s["bytes"].hex(), s["caption"], s["url"]] for s in data]))
        """,
        parquets,
        tmp_path,
    )
    assert sorted(found) == [
        [key, content, sample.kept["caption"], url]
        for (key, content, _, url), sample in zip(expected(EVERY), EVERY, strict=True)
    ]


def test_gnu_tar(tars: Path, tmp_path: Path) -> None:
    for name in sorted(tars.glob("*.tar")):
        done = subprocess.run(["tar", "-xf", name], cwd=tmp_path, capture_output=True, check=True)
        assert not done.stderr
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {name: content for sample in EVERY for name, content in sample.files().items()}


READERS = {
    "pyarrow": """
        import json, sys
        from pyarrow import dataset
        data = dataset.dataset([f"{sys.argv[1]}/{name}" for name in json.loads(sys.argv[2])])
        table = data.to_table().sort_by("key")
        print(json.dumps([[r["key"], r["bytes"].hex(), r["width"], r["url"]] for r in table.to_pylist()]))
        """,
    "duckdb": """
        import duckdb, json, sys
        files = [f"{sys.argv[1]}/{name}" for name in json.loads(sys.argv[2])]
        rows = duckdb.sql(f"SELECT key, hex(bytes), width, url FROM read_parquet({files}) ORDER BY key")
        print(json.dumps([[k, b.lower(), w, u] for k, b, w, u in rows.fetchall()]))
        """,
    "polars": """
        import json, polars, sys
        files = [f"{sys.argv[1]}/{name}" for name in json.loads(sys.argv[2])]
        rows = polars.scan_parquet(files).select("key", "bytes", "width", "url").sort("key").collect()
        print(json.dumps([[k, b.hex(), w, u] for k, b, w, u in rows.rows()]))
        """,
}


def run_reader(reader: str, root: Path, names: list[str], tmp_path: Path) -> Any:
    program = textwrap.dedent(READERS[reader]).replace("sys.argv[2]", repr(json.dumps(names)))
    return read(program, root, tmp_path)


@pytest.mark.parametrize("reader", READERS)
def test_parquet(reader: str, parquets: Path, tmp_path: Path) -> None:
    pytest.importorskip(reader)
    names = list(json.loads((parquets / "sizes.json").read_bytes()))
    found = run_reader(reader, parquets, names, tmp_path)
    assert found == [
        [sample.key, sample.content.hex(), sample.kept["width"], sample.metadata()["url"]]
        for sample in EVERY
    ]


ITEMS = """
import json, sys

def read_pyarrow(names):
    from pyarrow import dataset
    return dataset.dataset(names).to_table().to_pylist()

def read_duckdb(names):
    import duckdb
    rows = duckdb.sql(f"FROM read_parquet({names})")
    return [dict(zip(rows.columns, row)) for row in rows.fetchall()]

def read_polars(names):
    import polars
    return polars.scan_parquet(names).collect().to_dicts()

def read_datasets(names):
    from datasets import load_dataset
    return list(load_dataset("parquet", data_files=names, split="train"))

names = [f"{sys.argv[1]}/{number:05d}.parquet" for number in range(2)]
orders = names, names[::-1]
columns = "key", "error", "kept", "member"
print(json.dumps([sorted([row[name] for name in columns] for row in READ(order)) for order in orders]))
"""


@pytest.mark.parametrize("reader", ["pyarrow", "duckdb", "polars", "datasets"])
def test_shard_whose_column_is_empty_is_read_with_others(reader: str, tmp_path: Path) -> None:
    pytest.importorskip(reader)
    kept = [None, None], ["a", None]
    for number, values in enumerate(kept):
        shards = Shards(tmp_path / "d")
        samples = [example(number, index, 10, kept=value) for index, value in enumerate(values)]
        shards.publisher.publish(shards.job(number, samples, [failed(number, 2)] if number else []))
        shards.publisher.close()
    rows = [
        ["000000000", None, None, "000000000.jpg"],
        ["000000001", None, None, "000000001.jpg"],
        ["000010000", None, "a", "000010000.jpg"],
        ["000010001", None, None, "000010001.jpg"],
        ["000010002", "http-404", None, None],
    ]
    assert read(ITEMS.replace("READ(", f"read_{reader}("), tmp_path / "d", tmp_path) == [rows, rows]
