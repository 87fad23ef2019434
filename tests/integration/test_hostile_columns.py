"""Columns as no list should have them, through the kinds of stores: what is stored, kept and refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from harness import report_of
from list_writer import write
from pyarrow import parquet
from servers import CLOSE, Request, Server, Step, ok, status

from downloader.errors import SourceError
from downloader.sources.lists.arrow_values import values_of
from downloader.sources.lists.columns import Wanted
from downloader.sources.lists.files import ListFile
from downloader.sources.lists.open_rows import Reading, open_rows

Run = Callable[..., "subprocess.CompletedProcess[str]"]
QUICK = ("--workers", 1, "--retries", 0, "--progress", "none", "--json")


def answer(request: Request) -> Sequence[Step]:
    return ok(hashlib.sha256(request.target.encode()).digest(), "Content-Type: image/jpeg")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=answer) as made:
        yield made


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as shard:
        return {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]


def items(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


@pytest.mark.parametrize("name", ["l.csv", "l.parquet"])
def test_every_row_has_its_place_in_the_shard(
    name: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    names = [
        "a.b.jpg",
        "..",
        "../../x",
        "/etc/passwd",
        "a\nb",
        "a//b",
        "%2E",
        "00000.tar",
        "A",
        "a",
        "x.json",
    ]
    names += ["n" * 300 + ".png", "é" * 300, "d/" * 3000 + "e", "x/" + "n" * 300 + ".png"]
    names += ["a\0b"] if name != "l.csv" else []
    rows = [{"url": f"{server.url}/{n}", "name": each, "size": "32"} for n, each in enumerate(names)]
    faults = {
        "bad-url": [None, "", "file:///etc/passwd", f"{server.url}/a\nb"],
        "bad-row": [f"{server.url}/size"] * 3,
    }
    sizes = iter(["-1", "many", "1e400"])
    for code, urls in faults.items():
        for url in urls:
            size = next(sizes) if code == "bad-row" else None
            rows.append({"url": url, "name": "n", "size": size})
    long = [f"/{'u' * 300}.png", f"/a?{'q' * 300}=1", f"/a?{'q' * 300}=2&token=secret"]
    rows += [{"url": server.url + path, "name": None, "size": None} for path in long]
    source = write(tmp_path / name, rows)
    argv = (source, "-o", tmp_path / "d", "--store", "tar", "--sample-key", "name", *QUICK)
    done = run_downloader(*argv)
    report = report_of(done)
    assert (report["stored"], done.returncode) == (len(names) + len(long), 1), done.stderr
    assert report["failed_by_error"] == {code: len(urls) for code, urls in faults.items()}
    found = items(tmp_path / "d/00000.parquet")
    assert len({row["key"] for row in found}) == len(rows)
    stored = {row["url"].rpartition("/")[2]: row for row in found if row["error"] is None}
    content = members(tmp_path / "d/00000.tar")
    assert len(content) == 2 * (len(names) + len(long))
    for number in range(len(names)):
        body = hashlib.sha256(f"/{number}".encode()).digest()
        assert content[stored[str(number)]["member"]] == body
    for member in content:
        assert not member.startswith("/")
        assert not {"..", "."} & set(member.split("/"))
        assert member.isprintable()
        assert len(member.encode()) <= 100
    digests = {hashlib.sha256(hashlib.sha256(path.encode()).digest()).hexdigest() for path in long}
    cut = [row["name"] for row in found if row["sha256"] in digests]
    assert len(set(cut)) == len(cut) == len(long)
    assert all(len(each.encode()) <= 255 and "secret" not in each for each in cut)
    assert [each.rpartition(".")[2] for each in cut].count("png") == 1


def test_correct_rows_go_elsewhere_since_shards_cannot_be_listed_again(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = write(tmp_path / "l.csv", [{"url": f"{server.url}/1"}, {"url": "nothing"}])
    said = run_downloader(source, "-o", tmp_path / "d", "--store", "tar", *QUICK[:6]).stdout
    assert "correct the list (line 3): store the corrected rows with another -o" in said
    assert "--relist" not in said


KEPT = {
    "list": [["a"], []],
    "struct": [{"x": 1, "y": [1.5]}, {"x": None, "y": None}],
    "large": pa.array([2**64 - 1, 0], pa.uint64()),
    "bytes": ["a name of ours", "x"],
    "key": ["k", "l"],
    "list.key": ["m", "n"],
    'a "name"\nof \\ two lines': ["v", None],
    "": ["no name", "x"],
    "null": pa.nulls(2),
    "a.b": [True, False],
    "A.B": [1, 2],
}


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_columns_of_every_name_and_type_are_kept(
    store: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    urls = [f"{server.url}/{n}.jpg" for n in range(2)]
    parquet.write_table(pa.table({"url": urls, **KEPT}), tmp_path / "l.parquet")
    argv = (tmp_path / "l.parquet", "-o", tmp_path / "d", "--store", store, "--keep-columns", "all", *QUICK)
    done = run_downloader(*argv, "--manifest", tmp_path / "m.parquet")
    assert done.returncode == 0, done.stderr
    values = {name: each.to_pylist() if isinstance(each, pa.Array) else each for name, each in KEPT.items()}
    row = items(tmp_path / "d/00000.parquet")[0]
    renamed = {"bytes": "bytes_", "key": "list.list.key"}
    for name, (value, _) in values.items():
        if not name:
            continue  # a column without a name, as that of an index in pandas
        found = row[renamed.get(name, name)]
        nested = name in ("list", "struct")
        assert (json.loads(found) if nested else found) == value, name
    (manifest, _) = items(tmp_path / "m.parquet")
    assert manifest["large"] == 2**64 - 1
    assert json.loads(manifest["struct"]) == values["struct"][0]
    if store == "tar":
        fields = json.loads(members(tmp_path / "d/00000.tar")["000000000.json"])
        renamed = {"key": "list.list.key"}
        assert {name: fields[renamed.get(name, name)] for name in values if name} == {
            name: value for name, (value, _) in values.items() if name
        }
        assert fields["key"] == "000000000"


HUGE = "9" * 5_000
JSON_VALUES = {
    str(10**30): str(10**30),
    str(-(2**63) - 1): str(-(2**63) - 1),
    HUGE: HUGE,
    f"-{HUGE}": f"-{HUGE}",
    "NaN": None,
    "-Infinity": None,
    "1e999": None,
    "-1e999": None,
    '"\\ud800"': "\ufffd",
    '"a\\udfffb\\ud83d\\ude00"': "a\ufffdb\U0001f600",
    '"\\udcc3\\udca9"': "\ufffd\ufffd",  # also where Python has such for bytes of UTF-8
    f'[{{"\\ud800": [1e999, {HUGE}, "\\ud800"]}}]': [{"\ufffd": [None, HUGE, "\ufffd"]}],
    "[[1]," * 60 + "1" + "]" * 60: ...,
}
"""Values in a list, and what is kept of them."""


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_values_of_json_that_no_format_has(
    store: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    given = [*JSON_VALUES, "[" * 101 + "]" * 101, "[" * 9999 + "]" * 9999]
    lines = [f'{{"url": "{server.url}/{n}", "a\\"b": {value}}}' for n, value in enumerate(given)]
    (tmp_path / "l.jsonl").write_text("\n".join(lines))
    argv = (tmp_path / "l.jsonl", "-o", tmp_path / "d", "--store", store, "--keep-columns", 'a"b', *QUICK)
    done = run_downloader(*argv, "--manifest", tmp_path / "m.jsonl")
    assert report_of(done)["failed_by_error"] == {"bad-row": 2}, done.stderr
    wanted = [json.loads(text) if kept is ... else kept for text, kept in JSON_VALUES.items()]
    stored = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [row["columns"]['a"b'] for row in stored] == wanted
    rows = items(tmp_path / ("d/00000_items.parquet" if store == "parquet" else "d/00000.parquet"))
    found = [row['a"b'] for row in rows[: len(wanted)]]
    assert [None if text is None else json.loads(text) for text in found] == wanted
    assert [row["error_message"] for row in rows[len(wanted) :]] == [
        f"line {len(wanted) + n}: values are nested more than 100 deep" for n in (1, 2)
    ]
    if store == "tar":
        content = members(tmp_path / "d/00000.tar")
        fields = [json.loads(content[f"{row['key']}.json"]) for row in rows[: len(wanted)]]
        kept = [each['a"b'] for each in fields]
        # Of several types, so JSON text, but for lists and structs.
        assert [json.loads(each) if isinstance(each, str) else each for each in kept] == wanted


def test_columns_of_json_with_values_that_no_format_has(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    """Such a value in a column that decides: at worst the row fails, with a reason."""
    rows = [
        f'"url": "{server.url}/\\ud800"',
        f'"url": "{server.url}/1", "name": "n\\ud800"',
        f'"url": "{server.url}/2", "size": {HUGE}',
        f'"url": "{server.url}/3", "size": 1e999',
        f'"url": "{server.url}/4", "md5": "\\ud800"',
        f'"url": "{server.url}/5", "h": {{"X": "\\ud800"}}',
        f'"url": "{server.url}/6", "\\ud800": 1e999',
        f'"url": "{server.url}/7", "a": 1e999}} x',
        f'"url": {HUGE}',
    ]
    (tmp_path / "l.jsonl").write_text("".join(f"{{{row}}}\n" for row in rows))
    argv = (tmp_path / "l.jsonl", "-o", tmp_path / "d", "--header-column", "h", *QUICK)
    done = run_downloader(*argv, "--failures", tmp_path / "f", "--keep-columns", "all")
    assert report_of(done)["complete"], done.stderr
    failures = map(json.loads, (tmp_path / "f").read_text().splitlines())
    assert {failure["name"]: failure["code"] for failure in failures} == {
        **{"line 1": "bad-url", "line 3": "bad-row", "line 5": "bad-checksum", "line 6": "bad-row"},
        **{"line 8": "bad-row", "line 9": "bad-url"},
    }
    assert {path.name for path in (tmp_path / "d").iterdir()} == {".downloader", "n%FF", "3", "6"}


def test_text_that_is_not_utf8(server: Server, run_downloader: Run, tmp_path: Path) -> None:
    def text(*values: bytes) -> pa.Array:
        return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())

    urls = text(*(f"{server.url}/{n}".encode() for n in range(2)), b"http://h/\xff")
    note = text(b"\xffx", b"y", b"z")
    parquet.write_table(pa.table({"url": urls, "note": note}), tmp_path / "l.parquet")
    argv = (
        tmp_path / "l.parquet",
        "-o",
        tmp_path / "d",
        "--store",
        "tar",
        "--keep-columns",
        "note",
        *QUICK,
    )
    assert report_of(run_downloader(*argv))["failed_by_error"] == {"bad-url": 1}
    assert [row["note"] for row in items(tmp_path / "d/00000.parquet")] == ["\ufffdx", "y", "z"]
    nested = values_of(pa.ListArray.from_arrays([0, 1, 2, 3], note))
    assert nested == [["\udcffx"], ["y"], ["z"]]


def beyond() -> dict[str, pa.Array]:
    """Return columns of two rows that refer to what they do not have."""

    def made(kind: pa.DataType, *buffers: Any, children: Sequence[pa.Array] = ()) -> pa.Array:
        packed = [None, *(pa.py_buffer(each) for each in buffers)]
        return pa.Array.from_buffers(kind, 2, packed, children=list(children))

    def ints(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)

    text, whole = b"ab" * 4, pa.array(["a", "b"])
    codes = pa.array([0, 0], pa.int8())
    index = pa.DictionaryArray.from_arrays(pa.array([0, 900_000], pa.int32()), whole, safe=False)
    bounds = pa.array([0, 1, 2], pa.int32())
    found = {
        "text": made(pa.string(), ints(0, 3000, 8), text),
        "text before": made(pa.string(), ints(0, -4000, 8), text),
        "bytes": made(pa.binary(), ints(0, 3000, 8), text),
        "list": made(pa.list_(pa.string()), ints(0, 3000, 2), children=[whole]),
        "dictionary": index,
        "dense union": made(
            pa.dense_union([pa.field("a", pa.string())]), bytes(2), ints(0, 3000), children=[whole]
        ),
    }
    if hasattr(pa, "string_view"):
        view = ints(4) + b"abab" + ints(0, 0)
        far = ints(300) + b"abab" + ints(0, 42)
        found["view"] = made(pa.string_view(), view + far, text)
        found["list view"] = made(pa.list_view(pa.string()), ints(0, 1), ints(1, 3000), children=[whole])
    inner = {}
    for name, each in found.items():
        inner[f"struct of {name}"] = pa.StructArray.from_arrays([each], ["a"])
        inner[f"list of {name}"] = pa.ListArray.from_arrays(bounds, each)
        inner[f"map of {name}"] = pa.MapArray.from_arrays(bounds, whole, each)
        inner[f"sparse union of {name}"] = pa.UnionArray.from_sparse(codes, [each])
    for name in ("text", "list"):
        # Text beside it that is not UTF-8, which is no reason to refuse a list, hides nothing.
        wrong = made(pa.string(), ints(0, 1, 2), b"\xff\xff")
        inner[f"wrong text and {name}"] = pa.StructArray.from_arrays([wrong, found[name]], ["a", "b"])
    return {**found, **inner}


@pytest.mark.parametrize("form", ["file", "stream"])
def test_values_beyond_what_the_file_has_are_not_read(form: str, tmp_path: Path) -> None:
    for name, column in beyond().items():
        batch = pa.record_batch([pa.array(["http://h/a", "http://h/b"]), column], names=["url", "k"])
        made = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with made(tmp_path / "l.arrow", batch.schema) as writer:
            writer.write_batch(batch)
        file = ListFile(str(tmp_path / "l.arrow"), "arrow")
        with (
            contextlib.closing(open_rows(file, "l", Reading(Wanted(keep="k")))) as rows,
            pytest.raises(SourceError, match=r"^l cannot be read after row 0: ") as caught,
        ):
            rows.read(10)
        assert "write it again" in str(caught.value), name


@pytest.mark.parametrize("nested", [False, True])
def test_index_beyond_a_dictionary_of_parquet_is_not_followed(nested: bool, tmp_path: Path) -> None:
    """Its decoder looks at none."""
    numbers = [0, 1, 2, 1, 0, 2, 2, 1]
    column = pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(["a", "b", "c"]))
    if nested:
        column = pa.ListArray.from_arrays(list(range(9)), column)
    path = tmp_path / "l.parquet"
    table = pa.table({"url": [f"http://h/{n}" for n in range(8)], "k": column})
    parquet.write_table(table, path, compression="none", write_statistics=False)

    def packed(*indices: int) -> bytes:
        bits = sum(index << (2 * at) for at, index in enumerate(indices))
        return bytes([2, 3]) + bits.to_bytes(2, "little")

    data = path.read_bytes()
    assert data.count(packed(*numbers)) == 1
    path.write_bytes(data.replace(packed(*numbers), packed(0, 1, 3, *numbers[3:])))
    with (
        contextlib.closing(
            open_rows(ListFile(str(path), "parquet"), "l", Reading(Wanted(keep="k")))
        ) as rows,
        pytest.raises(SourceError, match=r"cannot be read after row 0: .*out of bounds"),
    ):
        rows.read(10)


def test_a_list_with_such_values_ends_the_run(run_downloader: Run, tmp_path: Path) -> None:
    batch = pa.record_batch([beyond()["text"]], names=["url"])
    with pa.ipc.new_file(tmp_path / "l.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    done = run_downloader(tmp_path / "l.arrow", "-o", tmp_path / "d", *QUICK)
    assert done.returncode == 2, done.stderr
    assert "cannot be read after row 0: Offset invariant failure" in done.stderr


def test_text_of_arrow_that_is_not_utf8_is_read_at_any_depth(tmp_path: Path) -> None:
    """What its values mean is not what makes a list unsafe; nor is a time that no clock shows."""
    raw = pa.array([b"\xffx", b"y"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    late = pa.array([2**30, 1], pa.int32()).view(pa.time32("s"))
    bounds = pa.array([0, 1, 2], pa.int32())
    empty = pa.ListArray.from_arrays(bounds, pa.nulls(2))
    columns = {
        "plain": text,
        "list": pa.ListArray.from_arrays(bounds, text),
        "large": pa.LargeListArray.from_arrays(bounds.cast("int64"), text),
        "fixed": pa.FixedSizeListArray.from_arrays(text, 1),
        "map": pa.MapArray.from_arrays(bounds, pa.array(["k", "l"]), text),
        "struct": pa.StructArray.from_arrays([text, empty, late], ["a", "b", "c"]),
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), text),
        "sparse": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [text]),
    }
    urls = pa.array(["http://h/a", "http://h/b"])
    batch = pa.record_batch([urls, *columns.values()], names=["url", *columns])
    with pa.ipc.new_file(tmp_path / "l.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    file = ListFile(str(tmp_path / "l.arrow"), "arrow")
    with contextlib.closing(open_rows(file, "l", Reading(Wanted(keep="all")))) as rows:
        table = rows.read(10).table
    assert not table.faults
    assert {name: values[0] for name, values in table.columns.items()} == {
        "url": "http://h/a",
        "plain": "\udcffx",
        "list": ["\udcffx"],
        "large": ["\udcffx"],
        "fixed": ["\udcffx"],
        "map": [("k", "\udcffx")],
        "struct": {"a": "\udcffx", "b": [None], "c": time(13, 37, 4)},
        "dictionary": "\udcffx",
        "sparse": "<a value of type sparse_union<0: string=0>>",
    }


FAR = "148108-07-06T14:00:27.387904"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.timestamp("us"), FAR),
        (pa.timestamp("us", "Europe/Berlin"), f"{FAR}Z"),
        (pa.duration("ms"), "PT4611686018427387.904S"),
        (pa.struct([("x", pa.timestamp("us"))]), {"x": FAR}),
        (pa.list_(pa.duration("s")), ["PT4611686018427387904S"]),
    ],
    ids=str,
)
def test_value_that_python_cannot_have_changes_no_other(kind: pa.DataType, said: object) -> None:
    numbers: list[Any] = [1_577_934_245, None, 1_500, 2**62]
    if isinstance(said, dict):
        numbers = [None if n is None else {"x": n} for n in numbers]
    elif isinstance(said, list):
        numbers = [None if n is None else [n] for n in numbers]
    column = pa.array(numbers, kind)
    found = values_of(column)
    assert found[:3] == column.slice(0, 3).to_pylist()
    assert found[3] == said
    assert [values_of(column.slice(at, 1)) for at in range(4)] == [[value] for value in found]


def test_dates_of_any_year_are_told_as_they_are() -> None:
    days = pa.array([10**7, -(10**6), 2**31 - 1, 0], pa.int32()).view(pa.date32())
    assert values_of(days) == ["29349-01-26", "-0768-02-04", "5881580-07-11", date(1970, 1, 1)]
    assert values_of(pa.array([10**15 + 1], pa.int64()).view(pa.date64())) == ["33658-09-27"]


@pytest.mark.parametrize("lane", ["auto", pytest.param("requests", marks=pytest.mark.slow)])
def test_value_that_parquet_cannot_have_fails_alone(
    lane: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {(1 << 31) - (1 << 16) + 1}\r\n\r\n"
    server.routes["/large.jpg"] = [head.encode(), b"x" * 300_000, CLOSE]
    source = write(
        tmp_path / "l.csv", [{"url": f"{server.url}/{name}.jpg"} for name in ("a", "large", "b")]
    )
    argv = (source, "-o", tmp_path / "d", "--store", "parquet", *QUICK, "--lane", lane)
    done = run_downloader(*argv)
    assert report_of(done)["failed_by_error"] == {"too-large": 1}, done.stderr
    rows = items(tmp_path / "d/00000_items.parquet")
    assert [row["error"] for row in rows] == [None, "too-large", None]
    assert "2.0 GiB, the limit of --max-size or --store" in rows[1]["error_message"]
    assert len(items(tmp_path / "d/00000.parquet")) == 2


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_row_that_fails_keeps_its_columns(
    store: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    """In a shard with stored items, in one without, and in one of what is fetched again."""
    server.routes["/1.jpg"] = server.routes["/2.jpg"] = server.routes["/3.jpg"] = status(404)
    rows = [
        {"url": f"{server.url}/{n}.jpg", "name": f"n{n}", "caption": f"c{n}", "width": n, "bytes": "x"}
        for n in range(4)
    ]
    rows.append({**rows[0], "url": None})
    source = write(tmp_path / "l.parquet", rows)
    argv = (source, "-o", tmp_path / "d", "--store", store, "--shard-files", 2, "--keep-columns", "all")
    assert run_downloader(*argv, *QUICK).returncode == 1
    server.routes.pop("/1.jpg")
    assert run_downloader(*argv, *QUICK).returncode == 1
    beside = "_items.parquet" if store == "parquet" else ".parquet"
    found = [row for shard in range(4) for row in items(tmp_path / f"d/{shard:05d}{beside}")]
    assert [(row["caption"], row["width"], row["bytes_"], row["error"]) for row in found] == [
        ("c0", 0, "x", None),
        ("c1", 1, "x", "http-404"),
        ("c2", 2, "x", "http-404"),
        ("c3", 3, "x", "http-404"),
        ("c0", 0, "x", "bad-url"),
        ("c1", 1, "x", None),
    ]
    assert {row["error_message"] for row in found} == {
        None,
        "the server answered 404",
        "row 5 has no URL",
    }


@pytest.mark.parametrize("name", ["l.parquet", "l.arrow"])
def test_values_that_python_cannot_have_are_text(
    name: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    day = pa.array([10**7, None, 1], pa.int32()).view(pa.date32())
    zone = pa.array([1, None, 2], pa.int64()).view(pa.timestamp("s", tz="Mars/Base"))
    far = pa.array([10**12, None, 2], pa.int64()).view(pa.timestamp("s", tz="Mars/Base"))
    length = pa.array([2**62, None, 1], pa.int64()).view(pa.duration("s"))
    columns: dict[str, pa.Array] = {"day": day, "zone": zone, "far": far, "length": length}
    for each in list(columns):
        columns[f"{each} in a struct"] = pa.StructArray.from_arrays([columns[each]], ["x"])
        columns[f"{each} in a list"] = pa.ListArray.from_arrays([0, 1, 2, 3], columns[each])
        columns[f"{each} in a map"] = pa.MapArray.from_arrays([0, 1, 2, 3], ["a", "b", "c"], columns[each])
    columns["dictionary"] = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1]), day.drop_null())
    table = pa.table({"url": [f"{server.url}/{n}" for n in range(3)], **columns})
    if name == "l.parquet":
        parquet.write_table(table, tmp_path / name)
    else:
        with pa.ipc.new_file(tmp_path / name, table.schema) as file:
            file.write_table(table)
    argv = (tmp_path / name, "-o", tmp_path / "d", "--keep-columns", "all", *QUICK)
    done = run_downloader(*argv, "--manifest", tmp_path / "m.jsonl")
    assert report_of(done)["stored"] == 3, done.stderr
    kept = [json.loads(line)["columns"] for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [row["day"] for row in kept] == ["29349-01-26", None, "1970-01-02"]
    assert [row["zone"] for row in kept] == ["1970-01-01T00:00:01Z", None, "1970-01-01T00:00:02Z"]
    for each in ("day", "zone", "far", "length"):
        assert [row[f"{each} in a struct"] for row in kept] == [{"x": row[each]} for row in kept]
        assert kept[0][f"{each} in a list"] == [kept[0][each]]
        assert kept[0][f"{each} in a map"] == [["a", kept[0][each]]]
    for column in ("name", "size"):
        again = run_downloader(
            *argv[:2], tmp_path / column, *argv[3:], f"--{column}-column", "length in a struct.x"
        )
        assert report_of(again)["complete"], again.stderr


@pytest.mark.parametrize("store", ["files", "tar"])
def test_columns_that_are_too_large_together(
    store: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    """They are kept in several batches, and so in several shards; only a row alone can have too much."""
    large = "x" * 2_200_000
    rows = [{"url": f"{server.url}/{n}", "note": large, "more": ["y"] * 9} for n in range(36)]
    rows.insert(20, {"url": f"{server.url}/no", "note": "x" * (17 << 20), "more": []})
    source = write(tmp_path / "l.parquet", rows)
    argv = (source, "-o", tmp_path / "d", "--store", store, "--keep-columns", "note,more", *QUICK)
    argv = (*argv, "--manifest", tmp_path / "m.jsonl")
    limited = report_of(run_downloader(*argv, "--limit", 4))
    assert (limited["listed"], limited["failed"]) == (4, 0)
    done = run_downloader(*argv, "--failures", tmp_path / "f")
    assert (report_of(done)["failed_by_error"], done.returncode) == ({"bad-row": 1}, 1), done.stderr
    failure = json.loads((tmp_path / "f").read_text())
    assert "row 21 has 17 MiB with its columns to keep, and a row may have 16 MiB" in failure["detail"]
    stored = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [row["columns"]["note"] for row in stored] == [large] * 36
    if store == "tar":
        shards = [items(path) for path in sorted((tmp_path / "d").glob("0*.parquet"))]
        assert [len(shard) for shard in shards] == [4, 24, 9]


TIMES = """
import sys
class Blocked:
    def find_spec(self, name, *_):
        if name == "pandas" and {blocked}:
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import pyarrow as pa
from downloader.sources.lists.arrow_values import values_of
at = [1706933106123456789, None, 1706933106123456000]
time = pa.array([123456789, None, 123456000], pa.time64("ns"))
columns = [
    *(pa.array(at, pa.timestamp("ns", zone)) for zone in (None, "UTC", "Europe/Paris")),
    time,
    pa.array([90 * 10**9, None, -5], pa.duration("ns")),
    pa.array(at, pa.timestamp("ns")).dictionary_encode(),
    pa.array([[at[0]], None, at], pa.list_(pa.timestamp("ns", "UTC"))),
    pa.StructArray.from_arrays([time, pa.array(at, pa.timestamp("ns"))], ["a", "b"]),
    pa.array([[("k", 5)], None, []], pa.map_(pa.string(), pa.duration("ns"))),
]
for column in columns:
    print(values_of(column))
"""


def test_times_with_nanoseconds_do_not_depend_on_pandas() -> None:
    printed = set()
    for blocked in (False, True):
        code = TIMES.format(blocked=blocked)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        printed.add(done.stdout)
    (both,) = printed
    assert "Timestamp" not in both
    assert {"'2024-02-03T04:05:06.123456789Z'", "'-PT0.000000005S'", "'00:00:00.123456789'"} < set(
        re.findall(r"'[^']*'", both)
    )
