"""Prepare what the servers serve, their directories and their certificate."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from checker import Truth
from programs import Room, Tls, nobody

MB = 1_000_000
FILES = 3001


@dataclass(frozen=True)
class Tree(Truth):
    """Files by the recipe of the test server, which the checker knows; but the last one has 1 MB."""

    def content(self, name: str) -> bytes:
        last = name == self.name(self.files - 1)
        return Truth(self.files, MB, MB).content(name) if last else super().content(name)


@pytest.fixture(scope="session")
def truth() -> Tree:
    """Return what is served."""
    return Tree(FILES, 100, 1000)


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """Return a directory that all users can read: those of pytest are private to their owner."""
    with tempfile.TemporaryDirectory(prefix="downloader-interop-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def tree(place: Path, truth: Tree) -> Path:
    """Return the files under ``get``, and their names in the file ``list``: together they can be SOURCE."""
    root = place / "tree"
    (root / "get").mkdir(parents=True)
    names = [truth.name(index) for index in range(truth.files)]
    for name in names:
        (root / "get" / name).write_bytes(truth.content(name))
    (root / "list").write_text(json.dumps({"FileNames": names}))
    return root


@pytest.fixture
def room(place: Path, tree: Path) -> Iterator[Room]:
    """Return a directory for the servers of one test, whichever user they run as."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        if owner := nobody():
            os.chown(name, owner["user"], owner["group"])
        yield Room(tree, Path(name))


@pytest.fixture(scope="session")
def tls(place: Path) -> Tls:
    """Return a certificate for a server at 127.0.0.1."""
    authority = trustme.CA()
    tls = Tls(place / "server.pem", place / "ca.pem")
    authority.cert_pem.write_to_path(str(tls.ca))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tls.certificate))
    if owner := nobody():
        os.chown(tls.certificate, owner["user"], owner["group"])
    os.chmod(tls.certificate, 0o600)
    return tls
