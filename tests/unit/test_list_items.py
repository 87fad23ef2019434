"""What items become of rows: names, faults, and what travels with an item."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downloader.core.column_types import MOST_COLUMNS
from downloader.core.headers import row_headers
from downloader.core.item_states import SKIPPED, ItemStates, merge, published, summed, written
from downloader.core.naming import BadName, list_path, numbered, unescape, url_name, url_path
from downloader.core.redact import NAMING
from downloader.messages import Item
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.items import ItemMaker, _bad_checksum
from downloader.sources.lists.rows import Table

KEY = b"k" * 32
PIECE = st.sampled_from(
    [
        "a",
        "B9",
        ".",
        "..",
        "-",
        "_",
        "~",
        "%2e",
        "%",
        "?",
        "=",
        "&",
        "token=x",
        "@",
        ":",
        "8080",
        "/",
        "//",
        ";",
        "#",
        "'",
        "(",
        "+",
        ",",
        "!",
        "$",
        "*",
        " ",
        "ü",
        "\u202e",
        "\\",
        "[",
        "::1]",
        "jsessionid",
        "x" * 300,
        "\n",
    ]
)


def items(columns: Columns, *, mirror: bool = False, **values: list[Any]) -> list[Item]:
    count = len(next(iter(values.values())))
    maker = ItemMaker(columns, KEY, mirror=mirror)
    return maker.items(Table(range(1, count + 1), values), lambda number: f"row {number}")


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(["http://", "https://", "HTTP://", "ftp://", ""]), st.lists(PIECE, max_size=8))
def test_names_do_not_depend_on_the_other_urls_of_a_page(scheme: str, pieces: list[str]) -> None:
    url = scheme + "".join(pieces)
    (alone,) = items(Columns("url"), url=[url])
    beside = items(Columns("url"), url=[url, "not a URL"])[0]
    assert alone == beside
    if not alone.fault:
        assert alone.url == url.strip()
        assert alone.name == url_name(url.strip(), KEY)
        parts = urlsplit(url.strip())
        assert parts.hostname
        assert parts.scheme in ("http", "https")
        assert parts.port != 0
        (mirrored,) = items(Columns("url"), mirror=True, url=[url])
        assert mirrored.fault or mirrored.name == url_path(url.strip(), KEY)


VALUES = {
    "url": [
        "http://h/a",
        "http://h/b/%41",
        " http://h/c ",
        "http://h/d?x=1",
        "",
        "no",
        None,
        "http://h/.e",
    ],
    "name": [
        "n",
        " n",
        "n ",
        "a/b ",
        " ",
        "",
        None,
        "\\N",
        " \\N",
        "n%",
        "\tn",
        ".n",
        7,
        1.5,
        b" n",
        "n" * 256,
    ],
    "size": ["1", 1, " 1", "", None, "x", 1.0, "1e3", True, float("nan"), "NA"],
    "sha1": ["ab" * 20, "AB" * 20, " ", "", None, "x", b"\1" * 20, f"md5:{'ab' * 16}", "NULL"],
    "header": ['{"A": "b"}', "", None, "{", "NA", '{"Host": "x"}'],
    "kept": ["x", None, 1, 2.5, b"x", "\udcff", 1 << 70, [1], {"a": [" x "]}],
}
"""What a row may have in each column; of each, some are plain and others are not."""
ROWS = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(some) for name, some in VALUES.items()}),
    min_size=2,
    max_size=5,
)
COLUMNS = Columns("url", "name", "size", (("sha1", "sha1"),), "header", keep=("kept",))


@settings(deadline=None, max_examples=150)
@given(ROWS, st.sampled_from(["flat", "mirror", "cut", "literal", "before"]))
def test_an_item_does_not_depend_on_the_other_rows_of_its_page(
    rows: list[dict[str, Any]], kind: str
) -> None:
    columns = COLUMNS._replace(literal=kind == "literal", below="data/" if kind == "literal" else "")
    naming = 4 if kind == "before" else NAMING
    if kind == "literal":  # a bag has text
        rows = [row | {"name": row["name"] if isinstance(row["name"], str) else "n"} for row in rows]
    if kind == "before":  # what depended on others then stays as it was
        rows = [row | {"name": "n"} for row in rows]

    def made(some: list[dict[str, Any]]) -> list[Item]:
        maker = ItemMaker(
            columns, KEY, mirror=kind == "mirror", cut=kind == "cut", literal=True, naming=naming
        )
        values = {name: [row[name] for row in some] for name in VALUES}
        return maker.items(Table(range(len(some)), values), lambda number: "a row")

    assert made(rows) == [made([row])[0] for row in rows]


def test_blanks_at_the_ends_of_a_name_are_part_of_it() -> None:
    """As RFC 4180 has it, whatever other rows have; blanks alone are no name."""
    given = ["n", " n", "n ", "  ", "\tn\n", "a/ b ", " \\N "]
    (*found,) = items(Columns("url", "name"), url=["http://h/u"] * len(given), name=given)
    assert [item.name for item in found] == ["n", " n", "n ", "u", "%09n%0A", "a/ b ", "u"]


def test_blanks_of_names_of_a_job_begun_before() -> None:
    """They were stripped, unless all names and URLs of a page were plain."""
    maker = ItemMaker(Columns("url", "name"), KEY, mirror=False, naming=4)
    for names, stored in ((["n ", "  "], ["n ", "  "]), (["n ", "a/b "], ["n", "a/b"])):
        table = Table(range(2), {"url": ["http://h/u"] * 2, "name": names})
        assert [item.name for item in maker.items(table, str)] == stored


@given(st.text(max_size=40))
def test_a_name_stays_below_the_destination_and_is_reversible(name: str) -> None:
    try:
        path = list_path(name)
    except BadName:
        assert not name or any(len(part.encode("utf-8", "surrogatepass")) > 60 for part in name.split("/"))
        return
    parts = path.split("/")
    assert not {"", ".", ".."} & set(parts)
    assert not path.startswith(".downloader")
    back = b"/".join(unescape(part) for part in parts)  # type: ignore[arg-type]
    assert back == name.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    ("path", "number", "name"),
    [
        ("a.jpg", 2, "a-2.jpg"),
        ("d.d/a", 10, "d.d/a-10"),
        ("a.tar.gz", 3, "a.tar-3.gz"),
        (".hidden", 2, ".hidden-2"),
        ("a.", 2, "a.-2"),
        ("x" * 255, 2, "x" * 253 + "-2"),
        ("%2F" * 85, 2, "%2F" * 84 + "-2"),
        ("\u00fc" * 127 + ".x", 12, "\u00fc" * 125 + "-12.x"),
    ],
)
def test_numbered_names(path: str, number: int, name: str) -> None:
    assert numbered(path, number) == name
    assert numbered(path, number, "http://h/a") == name
    assert len(name.rpartition("/")[2].encode()) <= 255


def test_numbers_precede_the_extension_of_the_path() -> None:
    """Not that of the query; jobs that were begun with the old rule go on with it (no URL)."""
    assert numbered("d/a.jpg?w=300", 2, "http://h/a.jpg?w=300") == "d/a-2.jpg?w=300"
    assert numbered("a?v=1.2", 2, "http://h/a?v=1.2") == "a-2?v=1.2"
    assert numbered("a?v=1.2", 2) == "a?v=1-2.2"
    assert numbered("what?.jpg", 2, "http://h/x?id=1") == "what?-2.jpg"
    long = f"{'x' * 100}.jpg?q={'y' * 148}"
    assert numbered(long, 12, f"http://h/{long}") == f"{'x' * 97}-12.jpg?q={'y' * 148}"
    query = f"x?{'y' * 253}"
    assert len(numbered(query, 12, f"http://h/{query}").encode()) <= 255


def test_kept_columns_travel_as_a_map() -> None:
    columns = Columns("url", keep=("a", "b"))
    rows = items(columns, url=["http://h/1", "http://h/2"], a=["x", None], b=[{"c": [1.5]}, "\udcff"])
    assert [msgspec.msgpack.decode(item.columns) for item in rows] == [
        {"a": "x", "b": {"c": [1.5]}},
        {"a": None, "b": "\ufffd"},
    ]
    table = Table([7], {"url": ["http://h/1"]}, extra=[{"z": 1}])
    (item,) = ItemMaker(Columns("url", keep=None), KEY, mirror=False).items(table, str)
    assert msgspec.msgpack.decode(item.columns) == {"z": 1}


def test_the_first_checksum_that_has_a_value_counts() -> None:
    columns = Columns("url", checksums=(("sha1", "sha1"), ("md5", "md5")))
    sha, md5 = "AB" * 20, "cd" * 16
    rows = items(columns, url=["http://h/1"] * 4, sha1=[sha, "", None, "x"], md5=[md5, md5, None, md5])
    assert [row.checksum for row in rows] == [f"sha1:{sha.lower()}", f"md5:{md5}", "", ""]
    assert [row.fault for row in rows] == ["", "", "", "bad-checksum"]


def test_checksums_with_their_algorithm_or_as_raw_bytes() -> None:
    """A manifest of ours has the former, a table may have the latter."""
    columns = Columns("url", checksums=(("sha256", "hash"),))
    digits, raw = "AB" * 32, b"\xab" * 32
    good = [digits, f"sha256:{digits}", f"SHA256:{digits}", raw, digits.encode(), f" sha256:{digits} "]
    rows = items(columns, url=["http://h/1"] * len(good), hash=good)
    assert [(row.checksum, row.fault) for row in rows] == [(f"sha256:{digits.lower()}", "")] * len(good)
    bad = ["md5:" + "ab" * 16, "sha256:ab", b"\xab" * 31, "sha256:", "ab" * 16]
    rows = items(columns, url=["http://h/1"] * len(bad), hash=bad)
    assert [row.fault for row in rows] == ["bad-checksum"] * len(bad)


def test_row_with_more_columns_than_can_be_kept_fails() -> None:
    """One of JSON, behind those from which the columns of its list were taken."""
    rows = [{f"c{at}": at for at in range(count)} for count in (MOST_COLUMNS, MOST_COLUMNS + 1)]
    maker = ItemMaker(Columns("url", keep=None), KEY, mirror=False)
    table = Table(range(2), {"url": ["http://h/1"] * 2}, extra=rows)
    most, more = maker.items(table, lambda number: "a row")
    assert (most.fault, msgspec.msgpack.decode(most.columns)) == ("", rows[0])
    assert (more.fault, more.detail) == (
        "bad-row",
        "a row has 1,001 columns to keep, and 1,000 is the limit",
    )


@pytest.mark.parametrize("algorithm", ["crc32", "crc32c"])
def test_a_crc_in_a_column_of_numbers_is_their_value(algorithm: str) -> None:
    columns = Columns("url", checksums=((algorithm, "s"),))
    good = [123, 0x12345678, 12345678, 2**32 - 1, 123.0, Decimal(123), "12345678", b"\0\0\0\x7b"]
    rows = items(columns, url=["http://h/1"] * len(good), s=good)
    found = ["0000007b", "12345678", "00bc614e", "ffffffff", "0000007b", "0000007b", "12345678", "0000007b"]
    assert [(row.checksum, row.fault) for row in rows] == [(f"{algorithm}:{each}", "") for each in found]
    (zero, none, missing) = items(columns, url=["http://h/1"] * 3, s=[0, None, float("nan")])
    assert (zero.checksum, none.checksum, missing.checksum) == (f"{algorithm}:00000000", "", "")
    bad = [-1, 2**32, -(2**31), 1.5, float("inf"), True, 1 << 70, "123", UUID(int=5), b"\0\0\x7b"]
    rows = items(columns, url=["http://h/1"] * len(bad), s=bad)
    assert [row.fault for row in rows] == ["bad-checksum"] * len(bad)


def test_md5_in_a_column_of_uuids_is_their_bytes() -> None:
    values = [UUID(int=0xAB << 120), "ab" + "0" * 30, b"\xab" + bytes(15)]
    rows = items(Columns("url", checksums=(("md5", "s"),)), url=["http://h/1"] * 3, s=values)
    assert [row.checksum for row in rows] == ["md5:ab" + "0" * 30] * 3
    (row,) = items(Columns("url", checksums=(("sha1", "s"),)), url=["http://h/1"], s=values[:1])
    assert row.fault == "bad-checksum"


@pytest.mark.parametrize(
    "values", [["5", "0", ""], [5, 0, None], [5.0, 0.0, float("nan")], ["5.0", " 0 ", ""]]
)
def test_sizes_of_every_type(values: list[Any]) -> None:
    rows = items(Columns("url", size="size"), url=["http://h/1"] * 3, size=values)
    assert [(row.size, row.fault) for row in rows] == [(5, ""), (0, ""), (-1, "")]


@pytest.mark.parametrize(
    "value",
    [-1, "-1", "1_0", "+1", "\u0661", 2.5, "1.5e0", "1e99", "e3", "1 NA", 1 << 70, float("inf"), True, [1]],
)
def test_sizes_that_are_none(value: Any) -> None:
    (row,) = items(Columns("url", size="size"), url=["http://h/1"], size=[value])
    assert row.fault == "bad-row"


@pytest.mark.parametrize("nothing", ["NA", "NULL", "\\N", "NaN", "null", "None", "N/A", "<NA>", ""])
def test_what_programs_write_for_nothing(nothing: str) -> None:
    """R, MySQL, PostgreSQL and pandas: of a name only \\N, since a file may have any other."""
    columns = Columns("url", "name", "size", (("md5", "md5"),), header="h")
    (row,) = items(columns, url=["http://h/1"], name=[nothing], size=[nothing], md5=[nothing], h=[nothing])
    assert (row.fault, row.size, row.checksum, row.headers) == ("", -1, "", ())
    assert row.name == ("1" if nothing in ("", "\\N") else nothing)


@pytest.mark.parametrize(
    ("written", "size"), [("1e+05", 100_000), ("6.4e+01", 64), ("0E0", 0), ("1e3", 1000)]
)
def test_sizes_with_an_exponent(written: str, size: int) -> None:
    (row,) = items(Columns("url", size="size"), url=["http://h/1"], size=[written])
    assert (row.fault, row.size) == ("", size)


def test_a_fault_of_a_secret_url_does_not_show_it() -> None:
    rows = items(
        Columns("url", size="size", checksums=(("md5", "md5"),)),
        url=["ftp://u:hidden@h/?token=hidden", "http://h/1", "http://h/1"],
        size=["", "https://h/?token=hidden", ""],
        md5=["", "", "https://u:hidden@h/"],
    )
    assert [row.fault for row in rows] == ["bad-url", "bad-row", "bad-checksum"]
    assert "hidden" not in "".join(row.detail + row.name for row in rows)


def test_header_fields_of_every_form() -> None:
    assert row_headers('{"A": " b ", "C": null}') == (("A", "b"),)
    assert row_headers({"A": "b"}) == (("A", "b"),)
    assert row_headers(["A: b:c", "D:e"]) == (("A", "b:c"), ("D", "e"))
    assert row_headers("{}") == ()


def test_skipped_items_have_no_file_and_no_size() -> None:
    states = ItemStates(3)
    states.publish(0, 10, 1)
    states.arrays[0][1] = SKIPPED
    packed = states.packed()
    assert summed(packed) == (2, 10)
    assert [mark.index for mark in published(packed)] == [mark.index for mark in written(packed)] == [0]
    assert summed(merge(packed, ItemStates(3).packed(), 3)) == (2, 10)
    assert states.in_flight() == []


def test_form_of_a_checksum_that_is_not_hexadecimal_is_named() -> None:
    for size, algorithm in ((16, "md5"), (20, "sha1"), (32, "sha256")):
        text = base64.b64encode(bytes(range(size))).decode().lower()
        assert "digits (Base64): " in _bad_checksum(f"{algorithm}:{text}").why
        assert "digits (Base64): " in _bad_checksum(f"{algorithm}:{text.rstrip('=')}").why
        assert "digits (SRI): " in _bad_checksum(f"{algorithm}:sha256-{text}").why
        assert "digits: " in _bad_checksum(f"{algorithm}:{text}x").why
