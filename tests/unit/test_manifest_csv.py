"""A manifest in CSV is read as it was meant by the readers that people have, which guess the dialect."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from downloader.reporting.manifest_formats import Row, writer_of

VALUES = [
    "plain",
    "a\rb",
    "a\nb",
    "a\r\nb",
    'q"q',
    '"x"',
    " lead",
    "trail ",
    "\tt",
    "",
    "a,b",
    "  ",
    "é",
    None,
]
VALUES += ["a;b;c;d;e;f;g;h;i;j;k;l", "a\tb\tc\td\te\tf\tg\th\ti\tj\tk\tl\tm", "a|b", "'x'", "'a,b'", "''"]
VALUES += ["\\", 'x\\"y', "\\N", "#c", "\ufeffbom", "null", "\n", "\r", '"', ",", "a\\", "-", "'", 'a"\nb']
VALUES += [
    "\x00nul",
    "\u2028line",
    "\x85next",
    "\x1c",
    "0",
    "1.5",
    "2024-01-01",
    "true",
    "\ud800",
    "x" * 5000,
]
READ = ["name", "etag", "last_modified", "content_type", "k"]


def row(number: int, *texts: str | None, kept: str | None) -> Row:
    first, second, third = texts
    return Row(f"n{number}", "u", None, 200, 1, None, first, second, third, None, None, None, {"k": kept})


def write(path: Path, rows: list[Row]) -> list[list[str]]:
    """Write a manifest of ``rows``; return what a reader must find in it."""
    with path.open("wb") as file:
        writer_of("m.csv", "flat", [rows])(file)
    found = [
        [each.name, each.etag, each.last_modified, each.content_type, each.columns["k"]] for each in rows
    ]
    return [[(text or "").replace("\ud800", "?") for text in texts] for texts in found]


def readings(path: Path) -> dict[str, list[list[str]]]:
    duckdb = pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    table = duckdb.sql(f"select {', '.join(READ)} from read_csv('{path}', all_varchar=true)").fetchall()
    return {
        "csv": [[line[name] for name in READ] for line in lines],
        "pandas": pandas.read_csv(path, dtype=str, keep_default_na=False)[READ].values.tolist(),
        "polars": [
            [text or "" for text in texts]
            for texts in polars.read_csv(path, infer_schema=False).select(READ).rows()
        ],
        "duckdb": [[text or "" for text in texts] for texts in table],
    }


@pytest.mark.parametrize("seed", range(60))
def test_every_reader_finds_every_value(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    rows = [
        row(number, *draw.choices(VALUES, k=3), kept=draw.choice(VALUES))
        for number in range(draw.choice([1, 1, 2, 3, 10, 60]))
    ]
    expected = write(tmp_path / "m.csv", rows)
    for reader, found in readings(tmp_path / "m.csv").items():
        assert found == expected, reader


def test_quotes_behind_the_rows_that_a_reader_looks_at(tmp_path: Path) -> None:
    rows = [row(number, "e", "m", "t", kept="v") for number in range(30_000)]
    expected = write(tmp_path / "m.csv", [*rows, row(30_000, "a,b", "a\nb", 'q"q', kept="a\rb")])
    for reader, found in readings(tmp_path / "m.csv").items():
        assert found == expected, reader


def test_what_is_not_known_differs_from_an_empty_text() -> None:
    out = io.BytesIO()
    writer_of("m.csv", "flat", [[row(1, None, "", "x", kept=None)]])(out)
    assert out.getvalue().splitlines()[1] == b'"n1","u",,200,1,,,"","x",,,,'


def test_columns_that_some_reader_takes_for_one_have_other_names() -> None:
    kept = {"Name": "1", "name": "2", "k": "3", " K ": "4", "columns.hash": "5", "hash": "6", 'a "b"': "7"}
    out = io.BytesIO()
    rows = [[Row("n", None, None, None, 1, None, None, None, None, None, None, None, kept)]]
    writer_of("m.csv", "flat", rows)(out)
    names, values = csv.reader(io.StringIO(out.getvalue().decode()))
    assert values[-len(kept) :] == list(kept.values())
    assert len({name.strip().casefold() for name in names}) == len(names) == 12 + len(kept)
    assert names[-1] == 'a "b"'
