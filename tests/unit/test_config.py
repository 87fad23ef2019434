"""Config: which values are accepted, which are refused with which message, and which are never shown."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from downloader.api import download
from downloader.cli import credentials
from downloader.config.config import Config
from downloader.config.machine import usable_cpus
from downloader.config.options import OPTIONS
from downloader.errors import ConfigError


def config(**more: Any) -> Config:
    return Config(**{"source": "http://h/p", "output": "d", **more})


def test_defaults_are_those_of_the_contract() -> None:
    made = config()
    assert (made.connections, made.retries, made.backoff, made.redirects) == (0, 5, 0.5, 5)
    assert (made.connect_timeout, made.read_timeout, made.deadline, made.max_retry_after) == (
        10,
        30,
        600,
        120,
    )
    assert (made.store, made.layout, made.progress, made.preflight) == ("files", "flat", "auto", "auto")
    assert made.kind == "server"
    assert made.worker_count == usable_cpus() >= 1
    assert made.retry_policy.retries == 5
    assert (made.connections, made.max_connections) == (0, 1024)
    assert config(connections=40).max_connections == 40


def test_config_survives_json() -> None:
    made = config(headers=(("X-A", "b"),), auth=("u", "p"), proxies={"http": "http://h:1"}, deadline=5)
    again = Config.decode(made.encode())
    assert again == made
    with pytest.raises(AttributeError):
        made.source = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *(
            (name, -1)
            for name in (
                "workers",
                "retries",
                "rate",
                "max_size",
                "limit",
                "redirects",
                "per_host",
                "connections",
            )
        ),
        *((name, 10**9) for name in ("workers", "connections", "per_host")),
        *((name, math.nan) for name in ("rate", "backoff", "deadline", "read_timeout")),
        *((name, math.inf) for name in ("backoff", "max_retry_after", "connect_timeout", "stall_timeout")),
        *((name, 0) for name in ("connect_timeout", "read_timeout", "deadline")),
    ],
)
def test_option_ranges(field: str, bad: float) -> None:
    with pytest.raises(ConfigError, match=f"--{field.replace('_', '-')} must be"):
        config(**{field: bad})


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"source": ""}, "SOURCE is missing"),
        ({"source": "http://h\0"}, "NUL"),
        ({"output": ""}, "-o DEST is missing"),
        ({"source": "http://[::1"}, "not a URL"),
        ({"source": "ftp://h", "source_type": "server"}, "not a URL"),
        ({"source": "http://u:secret@h/p?q", "source_type": "server"}, "no query or fragment"),
        ({"source": "s3://b/x", "source_type": "urls"}, "not available"),
        ({"source": "x.csv", "source_type": "urls"}, "No such file"),
        ({"source": "nowhere", "source_type": "urls"}, "No such file"),
        ({"headers": (("A\r\nB", "c"),)}, "not a header's name"),
        ({"headers": (("", "c"),)}, "not a header's name"),
        ({"headers": (("A", "secret\0"),)}, "line break or NUL"),
        ({"user_agent": "a\nb"}, "--user-agent"),
        ({"proxies": {"http": "http://u:secret@:1"}}, "not the URL of an HTTP proxy"),
        ({"proxies": {"http": "http://h:99999"}}, "not the URL of an HTTP proxy"),
        ({"netrc": "/nowhere"}, "cannot be read"),
        ({"cert": "/"}, "--cert / cannot be read .Is a directory"),
        ({"report": "/proc/none/x"}, "does not exist"),
        ({"report": "x", "failures": "x"}, "are one file"),
        ({"manifest": "-"}, "--manifest -: it is written to a file"),
        ({"dry_run": True, "failures": "x"}, "--dry-run fetches nothing"),
        ({"dry_run": True, "retry_failed": True}, "--dry-run fetches nothing"),
    ],
)
def test_invalid_options_are_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        config(**more)
    assert "secret" not in str(caught.value)


def test_report_may_be_in_a_destination_that_does_not_exist(tmp_path: Path) -> None:
    inside = str(tmp_path / "d" / "r.json")
    config(output=str(tmp_path / "d"), report=inside)
    with pytest.raises(ConfigError, match="does not exist"):
        config(output=str(tmp_path / "e"), report=inside)
    config(output="", dry_run=True)


def test_all_secrets_are_known_for_redaction(tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine a login u password in-netrc\ndefault login x password in-default\n")
    made = config(
        source="http://u:in%2Fsource@h",
        headers=(("Authorization", "Bearer in-header"),),
        auth=("u", "in-auth"),
        proxies={"http": "http://in-proxy@p:1"},
        netrc=str(netrc),
    )
    assert {"in%2Fsource", "in/source", "in-header", "Bearer in-header", "in-auth", "in-proxy", "in-netrc",
            "in-default"} == set(made.secrets)  # fmt: skip
    assert made.shown_source == "http://***@h"
    assert "in-" not in repr(made)
    assert "http://***@h" in repr(made)


def test_a_source_whose_name_is_not_text(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"\xff.txt")
    with open(path, "wb"):
        pass
    made = config(source=os.fsdecode(path))
    assert made.shown_source.endswith("/\\udcff.txt")
    made.shown_source.encode()


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert credentials.proxies("env") == ({}, "")
    monkeypatch.setenv("HTTP_PROXY", "http://from-a-request-header")
    monkeypatch.setenv("HTTPS_PROXY", "http://s")
    monkeypatch.setenv("all_proxy", "http://a")
    monkeypatch.setenv("NO_PROXY", "x")
    assert credentials.proxies("env") == ({"https": "http://s", "all": "http://a"}, "x")
    assert credentials.proxies("h:1") == ({"http": "http://h:1", "https": "http://h:1"}, "")
    assert credentials.proxies(None) == ({}, "")


def test_credentials_from_files(tmp_path: Path) -> None:
    path = tmp_path / "auth"
    path.write_text("user:pass:word\nmore\n")
    path.chmod(0o600)
    assert credentials.auth_from(str(path)) == ("user", "pass:word")
    path.write_bytes(b"\xef\xbb\xbfuser:p\r\n")
    assert credentials.auth_from(str(path)) == ("user", "p")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        credentials.auth_from(str(path))
    assert credentials.header(" X-A :  b: c ") == ("X-A", "b: c")


NONSENSE: tuple[Any, ...] = (
    *(
        None,
        True,
        5,
        -1,
        1.5,
        -1.5,
        2**70,
        math.nan,
        math.inf,
        "x\0y",
        "\ud800",
        b"s3cret",
        bytearray(b"s3cret"),
    ),
    *([], ["s3cret"], [[["s3cret"]]], [None], {"a": {"b": [1]}}, {1: 2}, {None: None}, {"a": None}),
    *(object(), complex(1, 2), print, Config),
)
# What is taken of these, beside what has the type of the default.
TAKEN: dict[str, tuple[Any, ...]] = {"auth": (None,), "files": (None,), "key_password": ("x\0y",)}


def _fits(name: str, value: Any, default: Any) -> bool:
    """Return whether a field may take ``value``: one of the type of its default, and within its range."""
    if isinstance(value, (str, type(None))) and value in TAKEN.get(name, ()):
        return True
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, (int, float)):
        whole = type(value) is int or (isinstance(default, float) and type(value) is float)
        return whole and 0 <= value < 2**63
    if isinstance(default, str):  # of the texts, one has a NUL, and one is no name of a file
        return value == "\ud800" and name not in ("source", "output")
    return value == []


@pytest.mark.parametrize("field", dataclasses.fields(Config), ids=lambda each: each.name)
def test_no_field_takes_nonsense(field: dataclasses.Field[Any], tmp_path: Path) -> None:
    """Each value is taken as it is, or refused in one line that names the field or its option."""
    output = str(tmp_path / "d")
    named = {
        field.name,
        field.name.replace("_", "-"),
        *(row.flag for row in OPTIONS if row.name == field.name),
    }
    if field.name in ("source", "output"):
        named |= {"SOURCE", "DEST"}
    default = getattr(config(output=output), field.name)
    for value in NONSENSE:
        try:
            config(**{"output": output, field.name: value})
        except ConfigError as error:
            text = str(error)
        else:
            text = field.name
            assert _fits(field.name, value, default), value
        assert any(name in text for name in named), (value, text)
        assert "\n" not in text
        assert "s3cret" not in text or "Invalid enum value" in text  # a word, which is no secret


@pytest.mark.parametrize("store", ["files", "tar", "parquet", "null"])
def test_no_option_of_a_sink_takes_nonsense(store: str) -> None:
    for option in config(store=store).sink_kind.options:
        for value in NONSENSE:
            try:
                config(store=store, store_options={option.name: value})
            except ConfigError as error:
                text = str(error)
            else:
                text = option.name
                assert type(value) is type(option.default), (option.name, value)
            assert option.name in text or option.flag in text
            assert "\n" not in text


@pytest.mark.parametrize("value", [None, 5, "x", {}, Config], ids=repr)
def test_download_takes_a_config_only(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"download\(\) takes a Config, not"):
        download(value)


class Text(str):
    """As numpy's text is."""


def test_text_of_a_class_of_its_own_is_taken_as_plain_text(tmp_path: Path) -> None:
    """Elsewhere it cannot be encoded: a path from an array of numpy ended in a TypeError."""
    config = Config(
        source=Text("http://h/"),
        output=Text(str(tmp_path / "d")),
        store=Text("files"),  # type: ignore[arg-type]
        headers=[(Text("a"), Text("b"))],  # type: ignore[arg-type]
        auth=(Text("u"), Text("p")),
        source_options={Text("list_path"): Text("/list")},
    )
    again = Config.decode(config.encode())
    assert again == config
    assert type(again.source) is type(config.source) is str
    assert type(config.headers[0][1]) is str


class Number(enum.IntEnum):
    TWO = 2


class Real(float):
    """As numpy's float64 is."""


class Scalar:
    """As numpy's int64 and bool_ are, which are no subclasses of Python's."""

    ndim = 0

    def __init__(self, value: object) -> None:
        self._value = value

    def item(self) -> object:
        return self._value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("workers", Number.TWO, 2),
        ("workers", Scalar(2), 2),
        ("backoff", Real(0.5), 0.5),
        ("backoff", Fraction(1, 2), 0.5),
        ("insecure", Scalar(True), True),
        ("store_options", {"shard_files": Number.TWO}, {"shard_files": 2}),
        ("store_options", {"shard_files": Scalar(2)}, {"shard_files": 2}),
    ],
)
def test_numbers_of_another_class_are_taken_as_plain_ones(
    name: str, value: Any, expected: object, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"store": "tar", name: value}
    config = Config(source="http://h/", output=str(tmp_path / "d"), **given)
    found = getattr(config, name)
    assert (found, type(found)) == (expected, type(expected))
    assert getattr(Config.decode(config.encode()), name) == expected


class NoPath:
    def __fspath__(self) -> Any:
        return 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("output", NoPath()),
        ("layout", Real(1)),
        ("workers", Scalar("x")),
        ("workers", 2.5),
        ("insecure", 2),
        ("source_options", range(3)),
        ("store_options", [("a", "b")]),
        ("proxies", "http://h"),
        ("auth", ("\ud800", "p")),
        ("key_password", "\udfff"),
    ],
)
def test_values_that_are_of_no_use_are_named(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^Config.{name}: "):
        Config(**{"source": "http://h/", "output": str(tmp_path), name: value})


def test_a_value_that_contains_itself_is_named(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match=r"^Config\.layout: nested too deep"):
        Config(source="http://h/", output=str(tmp_path), layout=endless)  # type: ignore[arg-type]
