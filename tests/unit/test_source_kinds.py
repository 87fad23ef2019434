"""Which kind of source a form is."""

from __future__ import annotations

import importlib.util

import pytest

from downloader.config.source_kinds import KINDS, check_form, source_kind
from downloader.errors import ConfigError
from downloader.sources.registry import MODULES


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
    ],
)
def test_kinds(source: str, kind: str) -> None:
    assert source_kind(source) == kind
    check_form(source)


@pytest.mark.parametrize(
    "source", ["s3://b/p", "index+https://h/", "x.csv", "x.CSV.gz", "x.jsonl", "x.parquet", "x.txt.zst"]
)
def test_forms_of_a_later_version(source: str) -> None:
    for ask in (source_kind, check_form):
        with pytest.raises(ConfigError, match="not available in this version"):
            ask(source)


@pytest.mark.parametrize(
    "source", ["", "--", "list", "ftp://u:secret@h/x.txt", "x.txt\x1b[2J", "file:///x.txt"]
)
def test_forms_of_nothing(source: str) -> None:
    with pytest.raises(ConfigError, match="neither the URL of a file server") as caught:
        source_kind(source)
    assert "secret" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_each_kind_has_its_module() -> None:
    for kind in KINDS:
        assert importlib.util.find_spec(f"downloader.sources.{MODULES[kind]}")
