"""The rows of lists: read in pages of any size, made again, and gone on with from any page."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
import tempfile
import time
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from list_writer import SUFFIXED, write, zstd
from pyarrow import ipc, parquet

from downloader.core.column_types import MOST_COLUMNS
from downloader.core.name_list import encode_names
from downloader.errors import ConfigError, SourceError
from downloader.messages import Recall
from downloader.sources.lists.columns import Columns, Wanted, choose, parse_checksum_column
from downloader.sources.lists.files import find_files
from downloader.sources.lists.open_rows import Reading, check_file, open_rows
from downloader.sources.lists.rows import Chunk, Rows
from downloader.sources.url_lister import UrlLister

FIELD = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=6
) | st.sampled_from(['"', '""', ",", "\n", "\r\n", 'a"b', '"a"', " ", "\t", "#", "\ufeff", "x\ny\nz", ""])
ROWS = [{"url": f"http://h/{n}", "name": f"n{n}", "size": n, "note": f'"{n}",\n'} for n in range(100)]


def opened(path: Path, wanted: Wanted | None = None, form: str = "", **more: bool) -> Rows:
    (file,) = find_files(str(path), form)
    return open_rows(file, path.name, Reading(wanted or Wanted(), **more))


def read_on(rows: Rows, cursor: bytes, most: int) -> list[Chunk]:
    rows.advance(cursor)
    chunks = []
    while (chunk := rows.read(most)).taken:
        chunks.append(chunk)
    return chunks


def told(chunks: list[Chunk], *columns: str) -> list[tuple[Any, ...]]:
    return [row for chunk in chunks for row in zip(*[chunk.table.columns[c] for c in columns], strict=True)]


def faults_of(chunks: list[Chunk]) -> dict[int, str]:
    """Return the faults by line."""
    return {chunk.table.numbers[at]: why for chunk in chunks for at, why in chunk.table.faults.items()}


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(FIELD, FIELD), max_size=12),
    st.sampled_from([",", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 5),
)
def test_quoted_fields_survive_any_pages(
    rows: list[tuple[str, str]], delimiter: str, end: str, bom: bool, newline_at_end: bool, most: int
) -> None:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    csv.writer(stream, delimiter=delimiter, lineterminator=end).writerow(["url", "no te"])
    writer.writerows(rows)
    data = stream.getvalue()
    data = ("\ufeff" if bom else "") + (data if newline_at_end else data.removesuffix(end))
    wanted = Wanted(keep="no te")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / ("l.csv" if delimiter == "," else "l.tsv")
        path.write_bytes(data.encode())
        with closing(opened(path, wanted)) as source:
            chunks = read_on(source, b"", most)
        assert told(chunks, "url", "no te") == rows
        assert all(len(chunk.table.numbers) <= most for chunk in chunks)
        with closing(opened(path, wanted)) as source:
            assert [source.again(chunk.start, chunk.end)[:3] for chunk in chunks] == [c[:3] for c in chunks]
        for index, chunk in enumerate(chunks):
            with closing(opened(path, wanted)) as source:
                assert told(read_on(source, chunk.end, most), "url", "no te") == told(
                    chunks[index + 1 :], "url", "no te"
                )


@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("name", SUFFIXED)
def test_every_format_goes_on_from_every_page(tmp_path: Path, name: str, most: int) -> None:
    path = write(tmp_path / name, ROWS)
    columns = ["url"] if ".txt" in name else ["url", "name", "size"]
    want = [tuple(str(row[column]) for column in columns) for row in ROWS]

    def shown(chunks: list[Chunk]) -> list[tuple[str, ...]]:
        return [tuple(map(str, row)) for row in told(chunks, *columns)]

    with closing(opened(path)) as source:
        chunks = read_on(source, b"", most)
    assert shown(chunks) == want
    with closing(opened(path)) as source:
        assert [shown([source.again(chunk.start, chunk.end)]) for chunk in chunks] == [
            shown([chunk]) for chunk in chunks
        ]
    done = 0
    for chunk in chunks:
        done += len(chunk.table.numbers)
        with closing(opened(path)) as source:
            assert shown(read_on(source, chunk.end, most)) == want[done:]


@pytest.mark.parametrize("name", [name for name in SUFFIXED if "txt" not in name])
def test_a_list_that_has_changed_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROWS)
    with closing(opened(path)) as source:
        chunks = read_on(source, b"", 10)
    write(path, [ROWS[0], {**ROWS[1], "url": "http://h/X"}, *ROWS[2:]])
    with closing(opened(path)) as source, pytest.raises(SourceError, match=r"has changed .*--relist"):
        source.advance(chunks[4].end)


@pytest.mark.parametrize("name", ["l.parquet", "l.arrow", "stream.arrow", "l.csv.gz", "l.jsonl.zst"])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROWS * 100)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with (
        pytest.raises(SourceError, match=f"^{name} (is no complete|cannot be read after)"),
        closing(opened(path)) as source,
    ):
        read_on(source, b"", 100)


U = [f"http://h/{n}" for n in range(9)]
INTO = "which looks like a row; where quotes are text, --quote none"
OPEN = "a quote that is not closed; where quotes are text, --quote none"


@pytest.mark.parametrize(
    ("text", "urls", "faults"),
    [
        (f"{U[1]},a\rb\n{U[2]},x\n", [U[2]], {2: "a carriage return (CR) within a field"}),
        (f"{U[1]},a\r\r\n{U[2]},x\r\n", [U[1], U[2]], {}),
        (f'{U[1]},"a\rb"\n{U[2]},x\n', [U[1], U[2]], {}),
        (f"{U[1]},{'x' * (2 << 20)}\n{U[2]},x\n", [U[2]], {2: "longer than 1 MiB"}),
        (f'{U[1]},"a\n{"x" * (2 << 20)}",y\n{U[2]},x\n', [U[2]], {2: "line 3 of the row is", 3: "longer"}),
        (f'{U[1]},"open\nand on\n{U[2]},x\n', [U[2]], {2: "into line 4, " + INTO, 3: "1 fields"}),
        (f'{U[1]},x\n{U[2]},"open\n', [U[1]], {3: OPEN}),
        (f'{U[1]},"open\nand,on\n', ["and"], {2: OPEN}),
        (f'{U[1]},"a" b\n{U[2]},x\n', [U[2]], {2: "text behind a closing quote; where"}),
        (f'{U[1]},"a\nb" c\n{U[2]},x\n', [U[2]], {2: "closing quote in line 3", 3: "1 fields"}),
        (f'{U[1]},"a\n{U[2]},b\n{U[3]},"c\n', [U[2]], {2: "into line 3, " + INTO, 4: OPEN}),
        (f'{U[1]},"a\n{U[2]},27" TV\n', [U[2]], {2: "into line 3, " + INTO}),
        (f'{U[1]},"a\n{U[2]},b"\n{U[3]},c\n', [U[2], U[3]], {2: "into line 3, " + INTO}),
        (f'{U[1]},"see\n{U[2]}\nor {U[3]},x"\n', [U[1]], {}),
        (f'"{U[1]}",x\n{U[2]},"say ""yes"""\n', [U[1], U[2]], {}),
        (f'{U[1]},"27\\""\n{U[2]},a\n', [U[2]], {2: 'into line 3, which looks like a row; where \\"'}),
        (f'{U[1]},"a,27\\""\n{U[2]},"c,d"\n', [U[2]], {2: "into line 3, which looks like a row; where"}),
        (f'{U[1]},"a,b\n{U[2]},"c,d"\n{U[3]},x\n', [U[2], U[3]], {2: "into line 3, " + INTO}),
        (f'{U[2]},x,"a\n{U[3]},b"\n', [U[3]], {2: "into line 3, " + INTO}),
        (f'{U[1]},"a\nb",c\n{U[2]},x\n', ['b"', U[2]], {2: "3 fields, and the header has 2 in line 3"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_row_that_cannot_be_read_is_a_fault(
    tmp_path: Path, delimiter: str, text: str, urls: list[str], faults: dict[int, str]
) -> None:
    """Also where another row is read with it: no row vanishes in a quoted field, and none ends the list."""
    path = tmp_path / ("l.csv" if delimiter == "," else "l.tsv")
    path.write_bytes(f"url,b\n{text}".replace(",", delimiter).encode())
    for most in (1, 100):
        with closing(opened(path)) as source:
            chunks = read_on(source, b"", most)
        found = faults_of(chunks)
        assert list(found) == list(faults)
        assert all(says in found[line] for line, says in faults.items()), found
        told_urls = [
            chunk.table.columns["url"][at]
            for chunk in chunks
            for at in range(len(chunk.table.numbers))
            if at not in chunk.table.faults
        ]
        assert told_urls == urls
        with closing(opened(path)) as source:
            assert [told([source.again(c.start, c.end)], "url") for c in chunks] == [
                told([c], "url") for c in chunks
            ]


def test_a_field_that_is_too_long_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(f'url,b\n{U[1]},"' + f"{1:999999}\n" * 20 + f'"\n{U[2]},x\n')
    with closing(opened(tmp_path / "l.csv")) as source:
        chunks = read_on(source, b"", 100)
    assert faults_of(chunks) == {2: "a field is longer than 16 MiB"}
    assert told(chunks, "url")[1:] == [(U[2],)]


def test_caption_in_front_of_the_url_may_have_any_lines(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(f'b,url\n"a\nb",{U[1]}\n"{U[2]}\nc",{U[3]}\n')
    with closing(opened(tmp_path / "l.csv")) as source:
        chunks = read_on(source, b"", 10)
    assert told(chunks, "url") == [(U[1],), (U[3],)]
    assert not faults_of(chunks)


def test_quote_behind_a_backslash_ends_no_row_of_another(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(f'b,url\n"a,27\\"",{U[1]}\n",\na",{U[2]}\n')
    with closing(opened(tmp_path / "l.csv")) as source:
        chunks = read_on(source, b"", 10)
    (why,) = faults_of(chunks).values()
    assert why.startswith('a quote behind a backslash in line 3; where \\" stands for a quote, convert')
    assert told(chunks, "url")[1:] == [(U[2],)]


def dialect(kind: str, rows: list[list[str]], delimiter: str) -> list[str]:
    """Return ``rows`` as text, one by one: backslashes in front of quotes, or quotes that are only text."""
    texts = []
    for row in rows:
        stream = io.StringIO()
        if kind == "escaped":
            how: dict[str, Any] = {"doublequote": False, "escapechar": "\\", "lineterminator": "\n"}
            csv.writer(stream, delimiter=delimiter, **how).writerow(row)
        else:
            stream.write(delimiter.join(row) + "\n")
        texts.append(stream.getvalue())
    return texts


CAPTION = st.lists(st.sampled_from(['"', "\\", "a", "b ", '27"', '"b']), max_size=4).map("".join)
LINES = st.lists(st.sampled_from(['"', "\\", "a", ",", "\t", "\n", '27"']), max_size=4).map("".join)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.sampled_from(["escaped", "text", "ragged"]), st.sampled_from(",\t"), st.integers(0, 2))
def test_no_row_vanishes_in_a_quoted_field(data: st.DataObject, kind: str, delimiter: str, at: int) -> None:
    """A row is read, or fails with a line of it: whatever quotes are in the dialect of the list.

    One that another has taken in, so that no URL is in the place of one, fails with the first line of that.
    """
    field = LINES if kind == "escaped" else CAPTION
    drawn = data.draw(st.lists(st.tuples(field, field, st.booleans()), min_size=1, max_size=8))
    rows = [["b", "c"], *([b, c] for b, c, _ in drawn)]
    for number, row in enumerate(rows):
        row.insert(at, f"http://h/{number}.jpg" if number else "url")
    for row, (_, _, short) in zip(rows[1:], drawn, strict=True):
        if kind == "ragged" and short and at < 2:
            del row[2]
    texts = dialect(kind, rows, delimiter)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / ("l.csv" if delimiter == "," else "l.tsv")
        path.write_text("".join(texts))
        with closing(opened(path)) as source:
            chunks = read_on(source, b"", data.draw(st.sampled_from([1, 3, 100])))
    faults = faults_of(chunks)
    numbers = [number for chunk in chunks for number in chunk.table.numbers]
    urls = [url for (url,) in told(chunks, "url")]
    line, end = 2, 1 + sum(text.count("\n") for text in texts)
    for row, text in zip(rows[1:], texts[1:], strict=True):
        lines = range(line, line + text.count("\n"))
        is_read = any(
            row[at] in url for number, url in zip(numbers, urls, strict=True) if number not in faults
        )
        # One that is cut up into other fields fails, too, if what is left in the place of its URL is none.
        taken_in = any(
            not set(lines).isdisjoint(range(number, behind))
            for number, behind, url in zip(numbers, [*numbers[1:], end], urls, strict=True)
            if not (url or "").startswith("http")
        )
        assert is_read or taken_in or any(number in lines for number in faults), "".join(texts)
        line = lines.stop


def test_text_that_is_not_utf8_fails_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    row = f"{U[1]},caf\u00e9,x\n"
    path.write_bytes(
        b"url,b,c\n" + row.encode() + row.encode("latin-1") + f'{U[2]},"a\n\u00e9",x\n'.encode("latin-1")
    )
    with closing(opened(path, Wanted(keep="b"))) as source:
        chunks = read_on(source, b"", 100)
    assert faults_of(chunks) == {3: "not valid UTF-8", 4: "line 5 of the row is not valid UTF-8"}
    assert told(chunks, "b")[0] == ("caf\u00e9",)
    assert [chunk.table.note for chunk in chunks] == [
        "l.csv: line 3: not valid UTF-8, and a list must be; if it is in Windows-1252, convert it with: "
        "iconv -f WINDOWS-1252 -t UTF-8 < l.csv"
    ]
    path.write_bytes("url,na\u00efve\n".encode("latin-1") + row.encode())
    with pytest.raises(ConfigError, match=r"l.csv: the header, line 1, is not valid UTF-8, .*iconv"):
        opened(path)
    path.write_text(f'url,"b\n{U[1]},x\n{U[2]},27"\n')
    with pytest.raises(ConfigError, match="the header, line 1, has a quote that goes on into line 2"):
        opened(path)


def test_names_that_stand_for_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(f"url,name\n{U[1]},a\n{U[2]},NA\n{U[3]},NA\n")
    with closing(opened(tmp_path / "l.csv")) as source:
        notes = [chunk.table.note for chunk in read_on(source, b"", 1)]
    assert notes[::2] == ["", ""]
    assert notes[1] == (
        "l.csv: line 3: NA is taken for a name; where it stands for none, leave it empty, "
        "and the URL gives the name"
    )


def test_captions_with_single_quotes(tmp_path: Path) -> None:
    captions = ["a", "b", '"Untitled', '""', "e", '27" TV', 'a "b" c', '"whole"', '"', "j"]
    text = "".join(f"http://h/{n}\t{caption}\n" for n, caption in enumerate(captions, 1))
    (tmp_path / "l.tsv").write_text(text)
    wanted = Wanted(keep="2", positions=True)
    with closing(opened(tmp_path / "l.tsv", wanted)) as source:
        chunks = [source.read(100)]
    assert list(faults_of(chunks)) == [3, 9]
    assert len(told(chunks, "1")) == 10
    assert [chunk.table.note for chunk in chunks] == [
        "l.tsv: line 3: a quote that goes on into line 4, which looks like a row"
        "; where quotes are text, --quote none reads them"
        "; where they enclose line breaks, write the list as .jsonl or .parquet"
    ]
    with closing(opened(tmp_path / "l.tsv", wanted, quoted=False)) as source:
        chunks = read_on(source, b"", 4)
    assert not faults_of(chunks)
    assert [row[0] for row in told(chunks, "2")] == captions


def test_rows_of_another_width_are_faults(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text('url,b\nu1,x\nu2\n\nu3,x,y\n"u\n4",x\nu5,x\n')
    with closing(opened(tmp_path / "l.csv")) as source:
        (chunk,) = read_on(source, b"", 10)
    assert list(chunk.table.numbers) == [2, 3, 5, 6, 8]
    assert chunk.table.faults == {1: "1 fields, and the header has 2", 2: "3 fields, and the header has 2"}
    assert told([chunk], "url") == [("u1",), ("u2",), ("u3",), ("u\n4",), ("u5",)]


def test_columns_without_a_header_are_named_by_position(tmp_path: Path) -> None:
    (tmp_path / "l.tsv").write_text("caption one\thttp://h/1\ncaption\thttp://h/2\nonly\n")
    with closing(opened(tmp_path / "l.tsv", Wanted(url="2", keep="1", positions=True))) as source:
        chunks = read_on(source, b"", 2)
        assert told(chunks, "2", "1")[:2] == [("http://h/1", "caption one"), ("http://h/2", "caption")]
        assert chunks[1].table.faults == {0: "1 fields, and the first row has 2"}
        assert Columns("1") == choose(Wanted(positions=True), ["1"], "l")


def test_json_lines_that_are_no_objects_are_faults(tmp_path: Path) -> None:
    lines = ['{"url": "u1", "extra": {"a": [1]}}', "", "[1]", '{"url": ', '{"size": 3}', '{"url": "u6"}']
    last = b'{"url": "\xff"}\n{"url": "' + b"x" * (2 << 20) + b'"}\n'
    (tmp_path / "l.jsonl").write_bytes("\n".join([*lines, ""]).encode() + last)
    with closing(opened(tmp_path / "l.jsonl", Wanted(keep="all"))) as source:
        chunks = read_on(source, b"", 100)
    faults = {chunk.table.numbers[at]: why for chunk in chunks for at, why in chunk.table.faults.items()}
    assert faults == {
        3: "not a JSON object",
        4: "not valid JSON",
        7: "not valid UTF-8",
        8: "longer than 1 MiB",
    }
    assert [row[0] for row in told(chunks, "url")] == ["u1", None, None, None, "u6", None, None]
    assert chunks[0].table.extra[0] == {"extra": {"a": [1]}}


WIDE = ["l.csv", "l.tsv.zst", "l.jsonl", "l.parquet", "l.arrow"]


@pytest.mark.parametrize("name", WIDE)
def test_more_columns_than_can_be_kept_are_told_at_once(name: str, tmp_path: Path) -> None:
    """A list may have more, of which some are kept."""
    names = [f"c{at}" for at in range(MOST_COLUMNS + 1)]
    path = write(tmp_path / name, [{"url": "http://h/1", **dict.fromkeys(names, "v")}])
    says = f"{name} has 1,001 columns to keep, and 1,000 is the limit; name fewer with --keep-columns A,B"
    for keep in ("all", ",".join(names)):
        with pytest.raises(ConfigError) as caught:
            opened(path, Wanted(keep=keep))
        assert str(caught.value) == says
    for kept in (names[:-1], names[-1:]):
        with closing(opened(path, Wanted(keep=",".join(kept)))) as source:
            assert source.columns.keep == tuple(kept)
            assert len(source.kinds()) == len(kept)
            assert told(read_on(source, b"", 10), *kept) == [("v",) * len(kept)]


def test_job_of_a_version_that_kept_any_number_of_columns_is_told_what_to_do(tmp_path: Path) -> None:
    """Which columns it keeps cannot be changed."""
    path = write(
        tmp_path / "l.csv", [{"url": "http://h/1", **{f"c{at}": "v" for at in range(MOST_COLUMNS + 1)}}]
    )
    wanted = Reading(Wanted(keep="all"))
    for begun in (False, True):
        lister = UrlLister(
            find_files(str(path), ""), "l.csv", wanted, b"", options=1, mirror=False, colon=":"
        )
        with closing(lister), pytest.raises(ConfigError) as caught:
            lister.check(begun=begun)
        assert ("finish it with that version" in str(caught.value)) == begun


def test_columns_of_all_files_together_are_counted(tmp_path: Path) -> None:
    for file in range(2):
        names = [f"c{file}.{at}" for at in range(MOST_COLUMNS // 2 + 1)]
        write(tmp_path / f"{file}.jsonl", [{"url": "http://h/1", **dict.fromkeys(names, "v")}])
    files = find_files(f"{tmp_path}/*.jsonl", "")
    lister = UrlLister(
        files, "the lists", Reading(Wanted(keep="all")), b"", options=1, mirror=False, colon=":"
    )
    with closing(lister), pytest.raises(ConfigError, match="the lists has 1,002 columns to keep"):
        lister.column_types("", begun=False)


def test_columns_are_chosen_of_a_hundred_thousand_in_no_time() -> None:
    present = ["url", *(f"c{at}" for at in range(200_000))]
    kept = present[-MOST_COLUMNS:]
    begun = time.process_time()
    found = choose(Wanted(keep=",".join(kept)), present, "l")
    with pytest.raises(ConfigError, match="did you mean"):
        choose(Wanted(keep="c1x"), present, "l")
    assert time.process_time() - begun < 1.5
    assert found.keep == tuple(kept)


@pytest.mark.parametrize("name", ["l.parquet", "l.arrow"])
def test_checksums_in_columns_of_their_types(name: str, tmp_path: Path) -> None:
    raw = bytes.fromhex("00ab" * 8)
    columns = {
        "u": pa.array([123], pa.uint32()),
        "i": pa.array([123], pa.int64()),
        "f": pa.array([123.0]),
        "d": pa.array([Decimal(123)], pa.decimal128(10, 0)),
        "x": pa.array([123]).dictionary_encode(),
        "b": pa.array([b"\0\0\0\x7b"]),
        "s": pa.array(["0000007B"]),
    }
    sums = {
        "fixed": pa.array([raw], pa.binary(16)),
        "large": pa.array([raw], pa.large_binary()),
        "text": pa.array([raw.hex()]),
    }
    if hasattr(pa, "uuid"):
        sums["uuid"] = pa.ExtensionArray.from_storage(pa.uuid(), sums["fixed"])
    table = pa.table({"url": ["http://h/1"], **columns, **sums})
    path = tmp_path / name
    if name == "l.parquet":
        parquet.write_table(table, path)
    else:
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table)

    def checksum(algorithm: str, column: str) -> str:
        reading = Reading(Wanted(checksum=(algorithm, column)))
        files = find_files(str(path), "")
        lister = UrlLister(files, name, reading, b"", options=1, mirror=False, colon=":")
        with closing(lister):
            (page,) = lister.pages(b"", lambda: 9)
        return page.items[0].checksum

    assert {checksum("crc32", column) for column in columns} == {"crc32:0000007b"}
    assert {checksum("md5", column) for column in sums} == {f"md5:{raw.hex()}"}


@pytest.mark.parametrize("name", ["l.csv", "l.tsv"])
def test_read_ends_where_each_row_leaves_a_quote_open(name: str, tmp_path: Path) -> None:
    """Each row is looked at with the next line, which is another row: that must not go on to the end."""
    delimiter, rows = "," if name == "l.csv" else "\t", 45_000
    lines = [f'http://h/{n}{delimiter}"ditto' for n in range(rows)]
    lines[30_000] = f'http://h/good{delimiter}"two\nlines"'
    (tmp_path / name).write_text("\n".join([f"url{delimiter}x", *lines]) + "\n")
    with closing(opened(tmp_path / name)) as source:
        chunks = read_on(source, b"", 1000)
    assert max(len(chunk.table.numbers) for chunk in chunks) <= 10_000 + 2
    numbers = [number for chunk in chunks for number in chunk.table.numbers]
    assert numbers == [n for n in range(2, rows + 3) if n != 30_003]  # the second line of the good one
    assert len(faults_of(chunks)) == rows - 1
    for chunk in chunks:
        with closing(opened(tmp_path / name)) as source:
            again = source.again(chunk.start, chunk.end)
            assert (again.table.numbers, again.table.faults) == (chunk.table.numbers, chunk.table.faults)
            assert again.end == chunk.end


def test_options_of_a_file_for_aria2_have_a_limit(tmp_path: Path) -> None:
    options = "".join(f" option{n}=value\n" for n in range(50_000))
    (tmp_path / "l").write_text(f"http://h/1\n out=a\nhttp://h/2\n out=b\n{options}http://h/3\n out=c\n")
    with closing(opened(tmp_path / "l", form="aria2")) as source:
        chunks = read_on(source, b"", 100)
    assert max(sum(map(len, chunk.table.columns.values())) for chunk in chunks) < 1000
    faults = faults_of(chunks)
    assert faults.pop(3) == "the options of a file are longer than 64 KiB, the limit"
    assert all(why.endswith("has no URL before it") for why in faults.values())
    good = [row for row in told(chunks, "url", "out") if row[0]]
    assert good == [("http://h/1", "a"), ("http://h/2", "b"), ("http://h/3", "c")]
    (note,) = [chunk.table.note for chunk in chunks if chunk.table.note]
    assert note.endswith("option8, option9, …")
    for chunk in chunks:
        with closing(opened(tmp_path / "l", form="aria2")) as source:
            again = source.again(chunk.start, chunk.end).table
            assert (again.numbers, again.faults) == (chunk.table.numbers, chunk.table.faults)


def test_entries_of_aria2(tmp_path: Path) -> None:
    (tmp_path / "l").write_text(
        " out=nothing before\nhttp://h/1\thttp://g/1\t\n# comment\n\n\tdir=/a/./b\n  out=c\n"
        "  checksum=sha-1=AB\n  header=A: 1\n  header=B: 2\n  split=5\n  broken\nhttp://h/2\n out=d"
    )
    for most in (1, 2, 100):
        with closing(opened(tmp_path / "l", form="aria2")) as source:
            chunks = read_on(source, b"", most)
        got = told(chunks, "url", "mirrors", "out", "checksum", "header")
        assert got[1:] == [
            ("http://h/1", ("http://g/1",), ("a/b", "c"), "sha1:ab", ["A: 1", "B: 2"]),
            ("http://h/2", (), "d", "", None),
        ]
        faults = {
            chunk.table.numbers[at]: why for chunk in chunks for at, why in chunk.table.faults.items()
        }
        assert faults == {
            1: "the option out has no URL before it",
            2: "line 11 is indented, and no NAME=VALUE",
        }
        assert [chunk.table.note for chunk in chunks if chunk.table.note] == [
            "these options of aria2 in the list are ignored: split"
        ]


def test_bag_with_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "bagit.txt").write_text("BagIt-Version: 1.0\n")
    (tmp_path / "fetch.txt").write_text(
        "http://h/1 12 data/a%0Db%25.txt\nhttp://h/2 - data/with space\nhalf\n"
    )
    (tmp_path / "manifest-md5.txt").write_text(f"{0:032} data/with space\n{1:032} data/a%0db%25.txt")
    (tmp_path / "manifest-sha256.txt").write_text(
        f"{'AA' * 32}  data/with space\n{'bb' * 32} *data/a%0db%25.txt\n"
    )
    for path in (tmp_path / "fetch.txt", tmp_path):
        (file,) = find_files(str(path), "")
        assert file.form == "bagit"
        with closing(open_rows(file, "bag", Reading(Wanted()))) as source:
            (chunk,) = read_on(source, b"", 10)
        assert told([chunk], "url", "length", "path", "checksum")[:2] == [
            ("http://h/1", "12", "data/a\rb%.txt", f"sha256:{'bb' * 32}"),
            ("http://h/2", None, "data/with space", f"sha256:{'aa' * 32}"),
        ]
        assert chunk.table.faults == {2: "not a URL, a length and a path"}


def test_lines_of_every_format_that_are_too_long(tmp_path: Path) -> None:
    """What is there of such a line is neither a name, nor a mirror, nor a path in a bag."""
    long = "n" * 70_000
    (tmp_path / "l").write_text(f"{U[1]}\n out={long}\n{U[2]}\t{U[3]}/{long}\n{U[4]}\n#{long}\n")
    with closing(opened(tmp_path / "l", form="aria2")) as source:
        chunks = read_on(source, b"", 1)
    limit = "is longer than 64 KiB, the limit"
    assert faults_of(chunks) == {1: f"line 2 {limit}", 3: f"line 3 {limit}"}
    (tmp_path / "bagit.txt").write_text("BagIt-Version: 1.0\n")
    (tmp_path / "fetch.txt").write_text(f"{U[1]} - data/{long}\n{U[2]} - data/a\n")
    (tmp_path / "manifest-md5.txt").write_text(f"{0:032}  data/{long}\n{1:032}  data/a\n")
    (file,) = find_files(str(tmp_path / "fetch.txt"), "")
    check_file(file, "bag", Reading(Wanted()))
    with closing(open_rows(file, "bag", Reading(Wanted()))) as source:
        chunks = read_on(source, b"", 10)
    assert faults_of(chunks) == {1: "longer than 64 KiB, the limit"}
    assert told(chunks, "url", "path")[-1] == (U[2], "data/a")


def test_order_of_files_is_that_of_their_names(tmp_path: Path) -> None:
    for name in ("b.csv", "a.jsonl", "c.txt.gz", "_SUCCESS", ".hidden.csv", "notes.md", "sub/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [file.name for file in find_files(str(tmp_path), "")] == ["a.jsonl", "b.csv", "c.txt.gz"]
    assert [file.name for file in find_files(f"{tmp_path}/**/*.csv", "")] == ["b.csv", "sub/d.csv"]
    left_out = str(tmp_path / "a.jsonl")
    assert [file.name for file in find_files(str(tmp_path), "", (left_out,))] == ["b.csv", "c.txt.gz"]
    (tmp_path / "l[1].csv").touch()
    assert [file.path for file in find_files(f"{tmp_path}/l[1].csv", "")] == [f"{tmp_path}/l[1].csv"]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (
            Wanted(),
            "no column 'url' (--url-column), it has URL, nmae, sha256; did you mean --url-column URL?",
        ),
        (
            Wanted("URL", name="names"),
            "no column 'names' (--name-column), it has URL, nmae, sha256; did you mean",
        ),
        (Wanted("URL", size="bytes"), "l has no column 'bytes' (--size-column), it has URL, nmae, sha256"),
        (Wanted("URL", keep="sha256,x"), "no column 'x' (--keep-columns)"),
        (Wanted("URL", header="x"), "no column 'x' (--header-column)"),
        (Wanted("URL", checksum=("md5", "sha")), "did you mean --checksum-column md5=sha256?"),
        (Wanted("URL", header="nmae", keep="nmae"), "has the header fields, which are kept nowhere"),
    ],
)
def test_missing_columns_are_named_with_the_nearest(wanted: Wanted, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(wanted, ["URL", "nmae", "sha256"], "l")
    assert says in str(caught.value)


def test_columns_that_are_recognized() -> None:
    found = choose(Wanted(keep="all", header="h"), ["size", "md5", "url", "name", "sha256", "h"], "l")
    assert found == Columns(
        "url", "name", "size", (("sha256",) * 2, ("md5",) * 2), "h", keep=("size", "md5", "name", "sha256")
    )
    with pytest.raises(ConfigError, match="l has 2 columns 'url'"):
        choose(Wanted(), ["url", "url"], "l")
    assert parse_checksum_column("sha1=a=b") == ("sha1", "a=b")
    for wrong in ("sha1", "=x", "SHA-1=x"):
        with pytest.raises(ValueError, match="is not"):
            parse_checksum_column(wrong)


@pytest.mark.parametrize(
    ("column", "default", "option"),
    [
        ("Name", "name", "--name-column Name"),
        ("NAME ", "name", "--name-column 'NAME '"),
        ("Size", "size", "--size-column Size"),
        ("SHA256", "sha256", "--checksum-column sha256=SHA256"),
        ("SHA-256", "sha256", "--checksum-column sha256=SHA-256"),
        ("sha_256", "sha256", "--checksum-column sha256=sha_256"),
        (" Sha 1", "sha1", "--checksum-column sha1=' Sha 1'"),
        ("MD5", "md5", "--checksum-column md5=MD5"),
        ("CRC-32C", "crc32c", "--checksum-column crc32c=CRC-32C"),
    ],
)
def test_default_columns_in_other_letters_are_not_ignored(column: str, default: str, option: str) -> None:
    def found(*columns: str, varying: bool = False, **options: Any) -> Columns:
        return choose(Wanted(**options), ["url", *columns], "l", varying=varying)

    for varying in (False, True):
        for keep in ("", "all"):
            with pytest.raises(ConfigError, match=re.escape(f"{option} uses it")):
                found("text", column, varying=varying, keep=keep)
    # Not where the default is there, where the job uses none, and where the option names any.
    found(column, *((default,) if default != "crc32c" else ()), idle=("crc32c",))
    found(column, idle=(default,))
    kind = "checksum" if "checksum" in option else default
    chosen = found(column, **{kind: ("md5", column) if kind == "checksum" else column})
    assert column in chosen.needed
    # A name or a size that is kept may be anything else; a checksum is one.
    if kind == "checksum":
        with pytest.raises(ConfigError, match="--checksums off verifies none"):
            found(column, keep=column)
    else:
        assert found(column, keep=column).needed == ["url", column]


def test_other_columns_are_no_default_columns() -> None:
    names = ["filename", "file_size", "bytes", "sha256sum", "sha512", "md5_of_parts", "id.name", "surname"]
    assert choose(Wanted(), ["url", *names], "l") == Columns("url")
    with pytest.raises(ConfigError, match="2 columns 'md5'"):
        choose(Wanted(), ["url", "md5", "md5"], "l")


def test_depth_of_json_is_limited(tmp_path: Path) -> None:
    depths = (99, 100, 101)
    lines = [
        f'{{"url": "u", "x": {"[" * depth + "]" * depth}, "y": {"[" * 300 + "]" * 300}}}'
        for depth in depths
    ]
    (tmp_path / "l.jsonl").write_text("\n".join([*lines, '{"url": "u", "x": [' + "[]," * 200 + "1]}"]))
    with closing(opened(tmp_path / "l.jsonl", Wanted(keep="x"))) as source:
        assert faults_of(read_on(source, b"", 10)) == {3: "values are nested more than 100 deep"}


def _close(lister: UrlLister) -> None:
    lister._rows.close()  # otherwise the process of the feeder ends


def test_rows_read_together_that_no_batch_can_hold_are_several(tmp_path: Path) -> None:
    """Names of columns are kept with each row: here they are a megabyte, in rows of a few bytes."""
    names = [f"{at}{'n' * 50_000}" for at in range(20)]
    rows = "".join(f"http://h/{n}{',' * len(names)}\n" for n in range(150))
    path = tmp_path / "l.csv"
    path.write_text(f"url,{','.join(names)}\n{rows}")

    with contextlib.ExitStack() as made:

        def lister() -> UrlLister:
            reading = Reading(Wanted(keep="all"))
            found = UrlLister(
                find_files(str(path), ""), "l.csv", reading, b"", options=1, mirror=False, colon=":"
            )
            made.callback(_close, found)
            return found

        pages = list(lister().pages(b"", lambda: 100))
        assert [len(page.items) for page in pages] == [62, 38, 50]
        whole = [item for page in pages for item in page.items]
        assert [item.url for item in whole] == [f"http://h/{n}" for n in range(150)]
        names_of = [encode_names([item.name for item in page.items]) for page in pages]
        recalls = [
            Recall(seq, len(page.items), names_of[seq], page.recall_data) for seq, page in enumerate(pages)
        ]
        all_recalled, done = lister(), 0
        for page, recall in zip(pages, recalls, strict=True):
            done += len(page.items)
            assert lister().recall(recall).items == all_recalled.recall(recall).items == page.items
            going_on = lister()
            assert going_on.recall(recall).items == page.items
            for each in (lister(), going_on):
                following = [item for more in each.pages(page.cursor, lambda: 100) for item in more.items]
                assert following == whole[done:]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "arrow"])
def test_items_do_not_depend_on_the_rows_that_are_read_with_them(tmp_path: Path, form: str) -> None:
    """In every format the blanks of a name are part of it, whether the other rows are plain or not."""
    names = ["n", " n", "n ", "a/b ", " ", "", "q?", "50%", "p ", " p"]
    urls = [f"http://h/u{number}" for number in range(len(names))]
    urls[3] += " "  # of a URL they are not, in any page
    rows = [{"url": url, "name": name, "k": name} for url, name in zip(urls, names, strict=True)]
    path = write(tmp_path / f"l.{form}", rows)
    found = []
    for size in (100, 1, 3):
        lister = UrlLister(
            find_files(str(path), ""),
            "l",
            Reading(Wanted(keep="k")),
            b"",
            options=1,
            mirror=False,
            colon=":",
        )
        with contextlib.ExitStack() as made:
            made.callback(_close, lister)
            found.append(
                [item for page in lister.pages(b"", lambda size=size: size) for item in page.items]
            )
    assert found[0] == found[1] == found[2]
    assert [item.name for item in found[0]] == [
        *("n", " n", "n ", "a/b ", "u4", "u5", "q?", "50%25", "p ", " p")
    ]
    assert [item.url for item in found[0]] == [url.strip() for url in urls]


@pytest.mark.parametrize("name", ["l.txt", "l.txt.gz", "l.jsonl", "l.jsonl.zst"])
@pytest.mark.parametrize("most", [1, 3, 1000])
def test_lines_without_a_row_are_passed_over(name: str, most: int, tmp_path: Path) -> None:
    """Wherever they stand, rows have the same numbers, and are read again from the same places."""
    no_rows = ["\n" * 3000, " \r\n\n" * 700, " " * 70_000 + "\n"]
    no_rows += ["# x\n\n  #\n" * 500] if ".txt" in name else []
    parts: list[str] = []
    for at in range(12):
        url = f"http://h/{at}"
        parts += [f"{url}\n" if ".txt" in name else f'{{"url": "{url}"}}\n', no_rows[at % len(no_rows)]]
    text = "".join(parts)
    packed = {"gz": gzip.compress, "zst": zstd.compress}.get(name[-3:].strip("."))
    path = tmp_path / name
    path.write_bytes(packed(text.encode()) if packed else text.encode())
    lines = text.split("\n")
    with closing(opened(path)) as source:
        chunks = read_on(source, b"", most)
    numbers = [number for chunk in chunks for number in chunk.table.numbers]
    rows = list(zip(numbers, [url for (url,) in told(chunks, "url")], strict=True))
    good = [(number, url) for number, url in rows if url and url.startswith("http")]
    assert [url for _, url in good] == [f"http://h/{at}" for at in range(12)]
    assert all(f"http://h/{at}" in lines[number - 1] for at, (number, _) in enumerate(good))
    assert [url for _, url in rows].count("") == (len(rows) - 12 if ".txt" in name else 0)
    for index in range(0, len(chunks), max(1, len(chunks) // 9)):
        chunk = chunks[index]
        with closing(opened(path)) as source:
            again = source.again(chunk.start, chunk.end)
            assert (again.table.numbers, again.end) == (chunk.table.numbers, chunk.end)
            assert told(read_on(source, chunk.end, 1000), "url") == told(chunks[index + 1 :], "url")
    with closing(opened(path)) as source:  # as pages of shards are read again
        assert told([source.again(chunks[0].start, chunks[-1].end)], "url") == told(chunks, "url")


@pytest.mark.parametrize("line", [b"\n", b" \r\n", b"#\n"])
def test_millions_of_blank_lines_are_read_in_no_time(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "l.txt.gz"
    path.write_bytes(gzip.compress(line * 8_000_000 + b"http://h/a\n", 1))
    begun = time.process_time()
    with closing(opened(path)) as source:
        chunks = read_on(source, b"", 1000)
    assert time.process_time() - begun < 2
    assert told(chunks, "url") == [("http://h/a",)]
    assert list(chunks[-1].table.numbers) == [8_000_001]
    assert len(chunks) < 150
