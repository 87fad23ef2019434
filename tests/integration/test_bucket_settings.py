"""What a bucket is opened with, and cannot be: refused in one line before a request, not by a panic."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from bucket_server import set_credentials

from downloader.core.bucket_access import BucketAccess
from downloader.errors import ConfigError, DestinationError
from downloader.sinks.bucket_store import BucketError, open_bucket, translated

obstore = pytest.importorskip("obstore")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SECRET = "secret-half\nother-half"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--endpoint-url", "localhost:9000"),
        ("--region", "a\nb"),
        ("AWS_ENDPOINT_URL", "http://"),
        ("AWS_ENDPOINT_URL_S3", "http://h:99999"),
        ("AWS_ENDPOINT", "nonsense"),
        ("AWS_ACCESS_KEY_ID", SECRET),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SESSION_TOKEN", SECRET),
        ("AWS_DEFAULT_REGION", "a\r"),
    ],
)
def test_what_cannot_be_is_named(option: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if option.startswith("AWS"):
        monkeypatch.setenv(option, value)
    endpoint, region = (value if option == name else "" for name in ("--endpoint-url", "--region"))
    with pytest.raises(ConfigError) as refused:
        open_bucket("s3://shards/x", BucketAccess(endpoint, region))
    text = str(refused.value)
    assert text.startswith(f"{option} ")
    assert "\n" not in text
    assert "half" not in text


def test_an_empty_address_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS's own tools take it so; obstore ends in a panic."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "")
    assert (
        open_bucket("s3://shards/x", BucketAccess(region="us-east-1")).config["endpoint"]
        == "http://127.0.0.1:9"
    )


def test_a_panic_is_one_line() -> None:
    store = obstore.store.S3Store("b", endpoint="nonsense", region="x", client_options={"allow_http": True})
    with pytest.raises(BucketError) as found, translated():
        obstore.get(store, "x")
    assert "obstore ended in a panic" in str(found.value)
    assert "\n" not in str(found.value)
    assert found.value.lasting
    with pytest.raises(DestinationError), translated():
        raise DestinationError("ours")
    with pytest.raises(KeyboardInterrupt), translated():
        raise KeyboardInterrupt


def test_commands_refuse_them_and_change_nothing(run_downloader: Run, tmp_path: Path) -> None:
    source = tmp_path / "list.txt"
    source.write_text("http://127.0.0.1:9/a\n")
    wrong = ("--endpoint-url", "localhost:9000")
    refused = [
        run_downloader(source, "-o", "s3://b/x", "--journal", "j", "--store", "tar", *wrong, cwd=tmp_path),
        run_downloader("status", "s3://b/x", *wrong, cwd=tmp_path),
        run_downloader("verify", "s3://b/x", cwd=tmp_path, env={"AWS_ENDPOINT_URL": "localhost:9000"}),
        run_downloader(source, "-o", "gs://b/x", cwd=tmp_path),
        run_downloader("verify", "gs://b/x", cwd=tmp_path),
    ]
    for done in refused:
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        assert "localhost:9000: must be the URL of a server" in line or "gs:" in line
    assert [path.name for path in tmp_path.iterdir()] == ["list.txt"]
