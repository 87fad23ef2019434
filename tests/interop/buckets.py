"""Run a real S3 server, versitygw, over a directory of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from programs import Room, free_port, optional, running

KEY, SECRET, REGION = "interop-key-1", "interop-secret-1", "us-east-1"
BUCKET = "shards"


@dataclass(frozen=True)
class Bucket:
    """A bucket of a running server, whose ``log`` has a line for each request."""

    url: str
    log: Path

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the command line that name the server."""
        return ("--endpoint-url", self.url, "--region", REGION)

    def asked(self, operation: str, name: str = "") -> int:
        """Return how many requests there were of this kind, for objects whose key has ``name`` in it."""
        lines = self.log.read_text().splitlines()
        return sum(f" s3_{operation} " in line and name in line for line in lines)

    def client(self) -> Any:
        """Return a client that knows nothing of ours: AWS's own."""
        boto3 = pytest.importorskip("boto3")
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )

    def objects(self, prefix: str) -> dict[str, tuple[bytes, dict[str, Any]]]:
        """Return content and metadata of each object, by its key below ``prefix``; AWS's client verifies
        the checksums that the server states."""
        client = self.client()
        found = {}
        listed = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
        for key in [each["Key"] for each in listed]:
            answer = client.get_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
            found[key.removeprefix(f"{prefix}/")] = (answer["Body"].read(), answer)
        return found


@contextlib.contextmanager
def versitygw(room: Room) -> Iterator[Bucket]:
    """Yield an empty bucket. The server writes attributes of files, so it runs as the current user."""
    program, port, log = optional("versitygw"), free_port(), room.own / "access.log"
    (room.own / "buckets" / BUCKET).mkdir(parents=True)
    argv = [program, "--access", KEY, "--secret", SECRET, "--port", f"127.0.0.1:{port}"]
    argv += ["--access-log", log, "posix", room.own / "buckets"]
    with running(room, argv, port, ourselves=True) as server:
        yield Bucket(server.url, log)
