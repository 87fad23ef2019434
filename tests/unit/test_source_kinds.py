"""The kind that each form of source selects, and the message for an unknown form."""

from __future__ import annotations

import pytest

from downloader.config.config import Config
from downloader.config.source_kinds import SOURCE_KINDS, kind_of, refuse_later
from downloader.errors import ConfigError


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("http://h", "server"),
        ("HTTPS://h:8/prefix", "server"),
        ("http://h/list.txt", "server"),
        ("-", "urls"),
        ("list.txt", "urls"),
        ("dir.d/LIST.TXT", "urls"),
        ("list.txt.gz", "urls"),
        ("new\nline.txt", "urls"),
        ("./http:/x.txt", "urls"),
        ("x.csv", "urls"),
        ("x.CSV.gz", "urls"),
        ("x.tsv.zst", "urls"),
        ("x.ndjson", "urls"),
        ("x.parquet", "urls"),
        ("x.feather", "urls"),
        ("lists/part-*", "urls"),
        ("lists/**/[ab].csv", "urls"),
        ("/", "urls"),
    ],
)
def test_kind_of_each_source(source: str, kind: str) -> None:
    assert kind_of(source).name == kind
    refuse_later(source)


@pytest.mark.parametrize("source", ["s3://b/p", "index+https://h/", "s3://b/x.csv"])
def test_source_forms_of_a_later_version(source: str) -> None:
    for ask in (kind_of, refuse_later):
        with pytest.raises(ConfigError, match="not available in this version"):
            ask(source)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "--",
        "list",
        "ftp://u:secret@h/x.txt",
        "x.txt\x1b[2J",
        "file:///x.txt",
        "x.parquet.gz",
        "ftp://h/*",
    ],
)
def test_unknown_source_forms(source: str) -> None:
    with pytest.raises(ConfigError, match="neither the URL of a file server") as caught:
        kind_of(source)
    assert "secret" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_each_kind_is_found_by_its_name() -> None:
    for kind in SOURCE_KINDS:
        assert SOURCE_KINDS.named(kind.name) is kind
    with pytest.raises(ConfigError, match="--source 'none' is not one of server, urls"):
        SOURCE_KINDS.named("none")


def test_options_have_the_values_that_are_given_or_their_defaults() -> None:
    config = Config(source="http://h", output="d", source_options={"list_path": "names"})
    assert (config.source_option("list_path"), config.source_option("get_path")) == ("names", "get")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"source_options": {"lst_path": "x"}}, "'lst_path' is no option of 'server', which has list_path"),
        ({"source_options": {"list_path": 3}}, "'list_path' is 3, which is not text"),
        ({"store_options": {"depth": 1}}, "'depth' is no option of 'files', which has none"),
    ],
)
def test_an_option_that_a_kind_does_not_have(more: dict[str, dict[str, object]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config(source="http://h", output="d", **more)
