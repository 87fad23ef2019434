"""Make parts as a worker does, with Python's tarfile, and have them published by a real publisher."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from downloader.sinks.shards.jobs import FailedItem, PublisherSettings, ShardJob
from downloader.sinks.shards.publisher.client import Publisher

__all__ = ["Example", "Shards", "example", "examples", "failed", "publishing", "write_part"]


@dataclass
class Example:
    """A sample: its key, the content with its extension, further members, and kept columns."""

    key: str
    content: bytes
    extension: str = "jpg"
    members: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        url = f"https://host.example/{self.key}.{self.extension}"
        return {
            "key": self.key,
            "name": f"{self.key}.{self.extension}",
            "url": url,
            "final_url": url,
            "status": 200,
            "size": len(self.content),
            "sha256": hashlib.sha256(self.content).hexdigest(),
            "crc32": zlib.crc32(self.content),
            "content_type": "image/jpeg",
            "etag": "",
            "last_modified": "",
            "fetched_at": 1795470000.5,
            **self.kept,
        }

    def files(self) -> dict[str, bytes]:
        """Return the content of each member by its name."""
        return {
            f"{self.key}.{self.extension}": self.content,
            **{f"{self.key}.{name}": content for name, content in self.members.items()},
            f"{self.key}.json": json.dumps(self.metadata()).encode(),
        }


def example(shard: int, index: int, size: int = 100, **kept: Any) -> Example:
    """Return a sample with ``size`` bytes that depend on its place."""
    key = f"{shard:05d}{index:04d}"
    content = hashlib.shake_128(key.encode()).digest(size)
    return Example(key, content, members={"txt": b"caption %d" % index}, kept=kept)


def examples(shard: int, count: int, size: int = 100) -> list[Example]:
    """Return samples of a shard, with kept columns of several types."""
    return [
        example(shard, index, size + index, caption=f"number {index}", width=index, ratio=index / 2)
        for index in range(count)
    ]


def failed(shard: int, index: int, code: str = "http-404") -> FailedItem:
    """Return a failed item of a shard."""
    name = f"{index}.jpg"
    return FailedItem(f"{shard:05d}{index:04d}", name, f"https://host.example/{name}", code, "not found")


def write_part(path: Path, samples: Sequence[Example], times: int = 1795470000) -> None:
    """Write a part: a tar without its end."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for sample in samples:
            for name, content in sample.files().items():
                info = tarfile.TarInfo(name)
                info.size, info.mtime = len(content), times
                tar.addfile(info, io.BytesIO(content))
        end = tar.offset
    path.write_bytes(whole.getvalue()[:end])


class Shards:
    """A destination, and what publishes there."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.root = directory
        self.home = directory / ".downloader"
        self.home.mkdir(parents=True, exist_ok=True)
        settings = {
            "root": str(directory),
            "home": str(self.home),
            "store": "tar",
            "compression": "none",
            "max_size": 1 << 30,
            "reproducible": False,
            **options,
        }
        self.publisher = Publisher(PublisherSettings(**settings))

    def job(self, number: int, samples: Sequence[Example], lost: Sequence[FailedItem] = ()) -> ShardJob:
        """Write a part, and return the job that publishes it."""
        part = self.home / f"part-{number}"
        if samples:
            write_part(part, samples)
        return ShardJob(number, str(part), len(samples) + len(lost), list(lost), 1000.0, 1002.5)

    def names(self) -> set[str]:
        """Return the names of all files of the dataset, temporary ones too."""
        found = {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}
        return {name for name in found if not name.startswith(".downloader/published/")}

    def stats(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / f"{number:05d}_stats.json").read_bytes())
        return found

    def members(self, name: str) -> dict[str, bytes]:
        """Return the members of a tar as Python reads them, in order."""
        with tarfile.open(self.root / name, "r:*") as tar:
            found = {}
            for info in tar:
                file = tar.extractfile(info)
                assert file is not None
                assert info.name not in found
                found[info.name] = file.read()
        return found


@contextmanager
def publishing(root: Path, **options: Any) -> Iterator[Shards]:
    """Run a publisher for ``root`` with settings other than the usual ones."""
    shards = Shards(root, **options)
    try:
        yield shards
    finally:
        shards.publisher.close()
