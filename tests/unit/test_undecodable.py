"""Bytes that are no text, or nested without end, are damage like any other, wherever they are decoded."""

from __future__ import annotations

import ast
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from harness import ROOT

from downloader.cluster.driver.status import cluster_status
from downloader.cluster.plan.plan import PlanDirectory
from downloader.core.name_list import decode_names, decoded_place
from downloader.errors import UNDECODABLE, JournalError
from downloader.sinks.shards.samples import is_stated
from downloader.storage.lock import is_alive

NESTED = b"[" * 100_000 + b"]" * 100_000
# Both give what is not decoded on, as the whole of a line, or raise another error in the end.
ELSEWHERE = {"rows_jsonl.py"}


def test_no_decoder_is_guarded_against_one_of_its_errors_only() -> None:
    found = []
    for path in sorted((ROOT / "downloader").rglob("*.py")):
        tree = ast.parse(path.read_text())
        handled = [
            node.type for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.type
        ]
        names = [ast.unparse(each) for each in handled]
        if path.name not in ELSEWHERE and any("msgspec.DecodeError" in name for name in names):
            found.append(path.name)
    assert found == []
    for text in (b'["\xff"]', NESTED, b"{"):
        with pytest.raises(UNDECODABLE):
            msgspec.json.decode(text)


CONTENT = b"content"
METADATA = {
    "key": "k",
    "url": "http://h/k",
    "status": 200,
    "size": len(CONTENT),
    "sha256": hashlib.sha256(CONTENT).hexdigest(),
    "crc32": zlib.crc32(CONTENT),
    "caption": "words",
}


def stated(metadata: bytes) -> bool:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return is_stated(metadata, len(CONTENT), zlib.crc32(CONTENT), lambda: digest)


def test_metadata_of_a_sample_is_read_whole() -> None:
    """A torn KEY.json whose digest is right makes no sample: its rows could not be made."""
    whole = json.dumps(METADATA).encode()
    assert stated(whole)
    digest = str(METADATA["sha256"]).encode()
    for what, other in (
        (digest[:8], b"\xb0" + digest[1:8]),
        (b"http://h/k", b"http://\xe8/k"),
        (b'"words"', b'"w\xefrds"'),
        (b'"words"', NESTED),
        (b"200", b'"2"'),
        (b'"http://h/k"', b"7"),
    ):
        assert not stated(whole.replace(what, other)), other[:20]


@pytest.mark.parametrize(
    "packed", [b"\x91\xa1\xff", b"\x91" * 100_000, b"\xc1"], ids=["text", "deep", "no"]
)
def test_damaged_journal(packed: bytes) -> None:
    with pytest.raises(JournalError, match="the journal is damaged"):
        decode_names(zlib.compress(packed))
    with pytest.raises(JournalError, match="the journal is damaged"):
        decoded_place(packed, list[str])


def deep(text: bytes) -> bytes:
    return text.rstrip()[:-1] + b',"zz":' + NESTED + b"}"


def not_text(text: bytes) -> bytes:
    return text.replace(b'"s"', b'"\xf3"')


@pytest.mark.parametrize("damage", [deep, not_text])
def test_damaged_plan(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    plan = tmp_path / ".downloader" / "cluster"
    plan.mkdir(parents=True, mode=0o700)
    (tmp_path / ".downloader").chmod(0o700)
    fields = {"digest": "d", "source": "s", "output": str(tmp_path), "slice_files": 1}
    fields |= {"shared_since_ns": 0, "store": "files", "identity": "", "id": "i"}
    (plan / "plan.json").write_bytes(msgspec.json.encode(fields))
    (plan / "running.json").write_bytes(damage(b'{"tally":"s"}'))
    assert cluster_status(str(tmp_path)) is not None
    (plan / "plan.json").write_bytes(damage(msgspec.json.encode(fields)))
    with pytest.raises(JournalError, match=r"plan\.json is damaged"):
        PlanDirectory(str(tmp_path)).read()


def test_number_that_no_process_has() -> None:
    assert not any(map(is_alive, ("9" * 20, "9" * 19, "9" * 400, "0", "-1", "²", "")))
