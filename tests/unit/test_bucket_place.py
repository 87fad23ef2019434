"""Places and addresses of stores: what is a bucket, what is a directory, and what is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from downloader.config.config import Config
from downloader.core.bucket_access import NO_OPTIONS
from downloader.core.bucket_place import bucket_and_prefix, endpoint_problem, is_bucket, place
from downloader.errors import ConfigError
from downloader.sinks.bucket_store import open_bucket

NO_PLACES = [
    "gs://b/p",
    "hf://datasets/x",
    "hdfs://name:8020/x",
    "s3a://b/p",
    "az://b/p",
    "http://h/x",
    "HTTPS://h/x",
    "file:///tmp/x",
    "file:/tmp/x",
    "file://localhost/tmp/x",
    "s3:/b/p",
    " s3://b/p",
    "ssh://h/x",
]


@pytest.mark.parametrize("text", NO_PLACES)
def test_a_url_is_no_directory(text: str) -> None:
    for name in ("output", "journal", "scratch", "report", "failures", "manifest"):
        given: dict[str, str] = {"output": "x", "store": "tar", name: text}
        with pytest.raises(ConfigError) as refused:
            Config(source="http://127.0.0.1:9/", **given)  # type: ignore[arg-type]
        assert str(refused.value).startswith(f"-o {text}:" if name == "output" else f"--{name} {text}:")
        assert "\n" not in str(refused.value)
    if text.startswith("file"):
        assert str(refused.value).endswith("give the path alone: /tmp/x")


def test_a_path_that_lost_a_slash_and_a_password_are_told() -> None:
    with pytest.raises(ConfigError, match=r"^-o s3:/b/p: .* is s3://b/p meant\?$"):
        Config(source="http://127.0.0.1:9/", output=Path("s3://b/p"))
    with pytest.raises(ConfigError) as refused:
        Config(source="http://127.0.0.1:9/", output="ftp://me:secret@h/x")
    assert "secret" not in str(refused.value)
    with pytest.raises(
        ConfigError, match="--report s3://b/r: is in a bucket, and has to be on this machine"
    ):
        Config(source="http://127.0.0.1:9/", output="x", report="s3://b/r")


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        ("t//u", r"two slashes in a row; is s3://bkt/t/u meant\?$"),
        ("a///b//c/", r"is s3://bkt/a/b/c meant\?$"),
        ("./u", "a part . or .., "),
        ("t/../u", "a part . or .., "),
        ("t/..", "a part . or .., "),
        ("t\n/u", "a control character"),
        ("t\x7f", "a control character"),
        ("t\udcff", "is not UTF-8"),
    ],
)
def test_a_prefix_that_no_client_takes_is_refused(prefix: str, says: str) -> None:
    """Before anything is requested; the run ended with 4 and could never go on."""
    for given in (
        {"output": f"s3://bkt/{prefix}", "journal": "j"},
        {"output": "x", "journal": f"s3://bkt/{prefix}"},
    ):
        with pytest.raises(ConfigError, match=says):
            Config(source="http://127.0.0.1:9/", store="tar", **given)  # type: ignore[arg-type]
    pytest.importorskip("obstore")
    with pytest.raises(ConfigError, match=says):
        open_bucket(f"s3://bkt/{prefix}", NO_OPTIONS)


def test_slashes_at_the_ends_of_a_prefix_and_odd_names_are_fine() -> None:
    for text in ("s3://bkt", "s3://bkt/", "s3://bkt//t/", "s3://bkt/.t/u..", "s3://bkt/t u/%2e%2e/ü"):
        assert place(text) == text


def test_the_scheme_of_a_bucket_has_no_case() -> None:
    assert is_bucket("S3://Bucket/p")
    assert bucket_and_prefix("S3://Bucket/p/q/") == ("Bucket", "p/q")
    assert place("S3://Bucket/P") == "s3://Bucket/P"
    pytest.importorskip("obstore")
    config = Config(source="http://127.0.0.1:9/", output="S3://b/P", journal="j", store="tar")
    assert (config.output, config.is_bucket) == ("s3://b/P", True)


@pytest.mark.parametrize("path", ["x", "./gs://b/p", "/a/gs://b", "C:/x", "a:/b", "job:1/x", "s3:b", "-"])
def test_other_names_are_paths(path: str) -> None:
    assert place(path) == path
    assert not is_bucket(path)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:9000",
        "nonsense",
        "//h",
        "http:h",
        "http://",
        "http://:9000",
        "ftp://h",
        "http://h:99999",
        "http://h:port",
        "http://h:0",
        "http://h:-1",
        "http://h:\u0663",
        "http://[::1",
        "http://[zz]",
        "http://a b",
        " http://h",
        "http://h\n",
        "http://\th",
        "http://ex\xe4mple",
        "http://999.1.1.1",
        "http://xn--a",
        "http://a%zz",
        "https://me:secret@h",
        "http://h/?x=1",
        "http://h#x",
    ],
)
def test_addresses_that_no_store_has(url: str) -> None:
    problem = endpoint_problem(url)
    assert problem
    assert "secret" not in problem


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9000", "HTTPS://s3.example.com/", "http://[::1]:9", "http://minio_1:9000/p"]
)
def test_addresses_of_stores(url: str) -> None:
    assert endpoint_problem(url) == ""
