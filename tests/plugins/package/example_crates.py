"""A sink that the downloader does not know: one zip file for each batch, published when the batch is over.

``crate-SEQ.zip`` has the files of batch SEQ, and ``INDEX`` their records. Files that a later attempt at the
batch adds, because some had failed, are in ``crate-SEQ-1.zip``, and so on.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.config.extensions import Option
from downloader.config.sink_kinds import Unsharded
from downloader.core.item_states import UNTOUCHED
from downloader.core.ownership import Rules
from downloader.files.directory import Directory
from downloader.messages import Item, Lease, ResponseInfo
from downloader.sinks.sink import WRITTEN, BatchContent, Inspect, Locate, Sink, Written

INDEX = "index.msgpack"


class CrateWriter:
    """See ``FileWriter``."""

    def __init__(self, crate: Crate, name: str) -> None:
        self._crate = crate
        self._name = name
        self._body = bytearray()
        self.crc = 0

    @property
    def size(self) -> int:
        return len(self._body)

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self._body += chunk
        self.crc = zlib.crc32(chunk, self.crc)

    def publish(self) -> int:
        self._crate.files[self._name] = bytes(self._body)
        return WRITTEN

    def abort(self) -> None:
        pass


class Crate:
    """See ``BatchWriter``."""

    recovered = None

    def __init__(self, root: Path, seq: int) -> None:
        self._root = root
        self._seq = seq
        self._part = root / f".crate-{seq}.part"
        self.files: dict[str, bytes] = {}

    def put(
        self, item: Item, index: int, body: bytes | bytearray, crc: int, response: ResponseInfo | None
    ) -> int:
        return 0

    def flush(self) -> None:
        pass

    def open(
        self, item: Item, index: int, claim: int = UNTOUCHED, response: ResponseInfo | None = None
    ) -> CrateWriter:
        return CrateWriter(self, item.name)

    def commit(self, content: BatchContent) -> None:
        self._part.unlink(missing_ok=True)
        with zipfile.ZipFile(self._part, "x") as crate:
            for record in content.records:
                crate.writestr(record.name, self.files[record.name])
            crate.writestr(INDEX, msgspec.msgpack.encode(list(content.records)))
        number = 0
        while True:
            more = f"-{number}" if number else ""
            try:
                os.link(self._part, self._root / f"crate-{self._seq}{more}.zip")
                break
            except FileExistsError:
                number += 1
        self._part.unlink()

    def abort(self) -> None:
        self.files.clear()


class CrateSink:
    """See ``Sink``."""

    wants_records = True
    shards = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def begin(self, lease: Lease) -> Crate:
        (self._root / f".crate-{lease.seq}.part").unlink(missing_ok=True)
        return Crate(self._root, lease.seq)

    def find_existing(self, name: str) -> tuple[int, int] | None:
        return None

    def verify(self, written: Written) -> bool:
        return not problem_of(self._root, written)

    def close(self) -> None:
        pass


def problem_of(root: Path, written: Written) -> str:
    """Return what is wrong with a file that should be in a crate, "" where nothing is."""
    problem = "in no crate"
    for path in [root / f"crate-{written.seq}.zip", *root.glob(f"crate-{written.seq}-*.zip")]:
        try:
            with zipfile.ZipFile(path) as crate:
                body = crate.read(written.name)
        except (OSError, KeyError):
            continue
        except (zipfile.BadZipFile, zlib.error):
            problem = "in a damaged crate"
            continue
        if (len(body), zlib.crc32(body)) == (written.size, written.crc):
            return ""
        problem = "in a damaged crate"
    return problem


class Crates(Unsharded):
    """See ``downloader.sinks.sink.SinkKind``."""

    name = "crates"
    options: tuple[Option, ...] = ()
    keeps = True

    def check(self, config: Config) -> None:
        pass

    def open(self, config: Config, rules: Rules) -> Sink:
        return CrateSink(Path(config.output))

    def inspector(self, root: Path, identity: str) -> Inspect:
        return lambda written: problem_of(root, written)

    def locator(self, root: Path, identity: str, home: Directory) -> Locate:
        return lambda written, names: [(f"crate-{each.seq}", each.name) for each in written]


KIND = Crates()
