"""Run a real server of buckets, for tests: versitygw where it is installed, or moto's."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness import environment

__all__ = [
    "KEY",
    "SECRET",
    "BucketServer",
    "Stores",
    "bucket_server",
    "servers",
    "set_credentials",
    "two_stores",
]

KEY, SECRET = "test-access-key-1", "test-secret-key-1"
MOTO = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', *sys.argv[1:]])"


@dataclass
class BucketServer:
    """A server of buckets, with the bucket ``shards``; what it was asked is in ``log``."""

    url: str
    log: Path

    def store(self, prefix: str) -> Any:
        import obstore

        return obstore.store.S3Store(
            "shards",
            prefix=prefix,
            endpoint=self.url,
            access_key_id=KEY,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True, "allow_invalid_certificates": True},
        )

    def objects(self, prefix: str) -> dict[str, bytes]:
        import obstore

        store = self.store(prefix)
        found = (entry["path"] for page in obstore.list(store) for entry in page)
        return {path: bytes(obstore.get(store, path).bytes()) for path in found}

    def puts(self, name: str) -> int:
        """Return how often the object was sent, whole or in parts."""
        lines = self.log.read_text(errors="replace").splitlines()
        return sum(
            name in line and ('"PUT ' in line or "s3_Put" in line or "s3_UploadPart" in line)
            for line in lines
        )


def set_credentials(monkeypatch: pytest.MonkeyPatch, key: str = KEY, secret: str = SECRET) -> None:
    """Let the environment have these credentials, no other setting of AWS, and no proxy for the server."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextlib.contextmanager
def bucket_server(kind: str, directory: Path, pem: Path | None = None) -> Iterator[BucketServer]:
    """Run the server ``kind``, moto or versitygw, with its files in ``directory``.

    ``pem``: moto speaks TLS with the key and the certificate in it.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = directory / "log"
    if kind == "moto":
        pytest.importorskip("moto")
        argv = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            MOTO,
            str(port),
            *(("-c", str(pem), "-k", str(pem)) if pem else ()),
        ]
    else:
        if (program := shutil.which("versitygw")) is None:
            pytest.skip(
                "versitygw is not installed (go install github.com/versity/versitygw/cmd/versitygw@latest)"
            )
        (directory / "data" / "shards").mkdir(parents=True)
        argv = [
            program,
            "--port",
            f"127.0.0.1:{port}",
            "--access-log",
            str(log),
            "posix",
            str(directory / "data"),
        ]
    output = (directory / "output" if kind != "moto" else log).open("wb")
    env = environment(ROOT_ACCESS_KEY=KEY, ROOT_SECRET_KEY=SECRET)
    process = subprocess.Popen(argv, stdout=output, stderr=output, env=env)
    try:
        until_it_listens(port, process)
        if kind == "moto":
            connection = http.client.HTTPConnection("127.0.0.1", port)
            if pem:
                unverified = ssl._create_unverified_context()
                connection = http.client.HTTPSConnection("127.0.0.1", port, context=unverified)
            connection.request("PUT", "/shards", headers={"Content-Length": "0"})
            assert connection.getresponse().status == 200
            connection.close()
        yield BucketServer(f"http{'s' if pem else ''}://127.0.0.1:{port}", log)
    finally:
        process.kill()
        process.wait()
        output.close()


def until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        assert process.poll() is None
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)  # there is no event
            continue
        return
    raise AssertionError("the server does not listen")


def servers() -> Any:
    """Return a fixture of a module: a running server of each kind, one after the other."""

    @pytest.fixture(scope="module", params=["moto", "versitygw"])
    def server(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[BucketServer]:
        with bucket_server(request.param, tmp_path_factory.mktemp(request.param)) as running:
            yield running

    return server


class Stores(NamedTuple):
    """Two stores, each with a bucket of the same name."""

    ours: BucketServer
    other: BucketServer


@contextlib.contextmanager
def two_stores(place: Path) -> Iterator[Stores]:
    """Run two stores whose files are in directories below ``place``."""
    places = [place / "ours", place / "other"]
    for each in places:
        each.mkdir()
    with bucket_server("moto", places[0]) as ours, bucket_server("moto", places[1]) as other:
        yield Stores(ours, other)
