"""Check shards independently: their samples, rows, stats and indexes against what the test server serves.

Like ``checker`` it imports nothing of ``downloader``. Keys are those of ``--sample-key name``, and the
names of the test server have neither dots nor extensions: the key of a file is its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checker import HOME, Truth, Wrong, agree, ledgers
from pyarrow import ArrowException, parquet

__all__ = ["Lost", "check_dataset", "check_shards", "lost", "whole_in_parts", "whole_in_shards"]

_BLOCK = 512
_Samples = Iterator[tuple[str, bytes, "dict[str, Any]"]]


def _members(part: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the whole members at the beginning of ``part``, which is no whole tar and has no end."""
    at = 0
    while at + _BLOCK <= len(part) and any(header := part[at : at + _BLOCK]):
        size = int(header[124:135], 8)
        end = at + _BLOCK + size + -size % _BLOCK
        if end > len(part):
            return
        yield header[:100].rstrip(b"\0").decode(), part[at + _BLOCK : at + _BLOCK + size]
        at = end


def _paired(members: Iterator[tuple[str, bytes]]) -> _Samples:
    """Yield key, content and metadata of each sample whose two members follow each other."""
    last = ("", b"")
    for name, content in members:
        key, _, extension = name.partition(".")
        if extension == "json" and last[0].partition(".")[0] == key:
            yield key, last[1], json.loads(content)
        last = (name, content)


def _tar(path: Path) -> _Samples:
    with tarfile.open(path) as shard:
        yield from _paired((member.name, shard.extractfile(member).read()) for member in shard)  # type: ignore[union-attr]


def _parquet(path: Path) -> _Samples:
    for row in parquet.read_table(path).to_pylist():
        yield row["key"], row.pop("bytes"), row


_READ: dict[str, tuple[str, Callable[[Path], _Samples]]] = {
    "tar": ("*.tar", _tar),
    "parquet": ("*[0-9].parquet", _parquet),
}


def samples_in(dest: Path, store: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each sample of each published shard."""
    pattern, read = _READ[store]
    for path in sorted(dest.glob(pattern)):
        for _, content, metadata in read(path):
            yield metadata["name"], content


def _is_whole(truth: Truth, key: str, content: bytes, metadata: dict[str, Any]) -> bool:
    right = truth.content(key)
    digests = (hashlib.sha256(right).hexdigest(), "")  # `check_dataset` says which
    return content == right and metadata["sha256"] in digests


def whole_in_parts(dest: Path, truth: Truth) -> set[str]:
    """Return the names of the files that are whole in parts, of unpublished shards.

    A part that is published meanwhile has none: read the shards afterwards.
    """
    found = set()
    for path in dest.glob(f"{HOME}/shards/*.part"):
        with contextlib.suppress(FileNotFoundError):
            for key, content, metadata in _paired(_members(path.read_bytes())):
                if _is_whole(truth, key, content, metadata):
                    found.add(key)
    return found


def whole_in_shards(dest: Path, truth: Truth, store: str) -> set[str]:
    """Return the names of the files that are whole in published shards; of a damaged one, what can be
    read."""
    pattern, read = _READ[store]
    found = set()
    for path in dest.glob(pattern):
        try:
            for key, content, metadata in read(path):
                if _is_whole(truth, key, content, metadata):
                    found.add(key)
        except (tarfile.TarError, ArrowException, OSError, ValueError):
            pass
    return found


@dataclass(frozen=True)
class Lost:
    """What a killed worker had requested and not written.

    ``requested`` by its ledger; ``intended``: recorded there as about to be written, and neither in a part
    nor in a shard.
    """

    requested: int
    intended: int

    @property
    def files(self) -> int:
        """Return the number of both."""
        return self.requested + self.intended


def lost(dest: Path, truth: Truth, store: str, shard_files: int, worker: str = "ledger-*") -> Lost:
    """Return what the ledgers (or that of ``worker``) say is lost if their processes never run again.

    A batch of ``shard_files`` is a shard, so an item's place in the source follows from its place there.
    """
    requested = 0
    intended = set()
    for seq, states in ledgers(dest, worker):
        requested += len(states.in_flight - states.intended)
        intended |= {truth.name(seq * shard_files + index) for index in states.intended}
    if intended:
        intended -= whole_in_parts(dest, truth)
        intended -= whole_in_shards(dest, truth, store)
    return Lost(requested, len(intended))


def check_shards(
    dest: Path,
    truth: Truth,
    store: str,
    shard_files: int,
    report: dict[str, Any],
    *,
    digests: str = "sha256",
) -> None:
    """Raise ``Wrong`` unless the finished job has every file exactly once, in the shard of its place, and
    says so in the rows, the stats, the indexes, the journal and ``report``."""
    agree(dest, 0, report)
    check_dataset(dest, truth, store, shard_files, digests=digests)


def check_dataset(
    dest: Path, truth: Truth, store: str, shard_files: int, *, digests: str = "sha256"
) -> None:
    """Do the same for what is beside the journal, and find that nothing else is left in ``dest``."""
    hashed = digests == "sha256"
    wrong: list[str] = []
    pattern, read = _READ[store]
    seen: dict[str, str] = {}
    for path in sorted(dest.glob(pattern)):
        number = int(path.stem)
        keys = []
        for key, content, metadata in read(path):
            keys.append(key)
            if key in seen:
                wrong.append(f"{key}: in {seen[key]} and in {path.name}")
            seen[key] = path.name
            if not _is_whole(truth, key, content, metadata) or bool(metadata["sha256"]) != hashed:
                wrong.append(f"{key}: {len(content)} wrong bytes in {path.name}")
        due = [truth.name(index) for index in range(number * shard_files, (number + 1) * shard_files)]
        if sorted(keys) != due[: truth.files - number * shard_files]:
            wrong.append(f"{path.name}: {len(keys)} samples, which are not those of its place")
        wrong += _beside(dest, path, sorted(keys), store, hashed)
    if len(seen) != truth.files:
        wrong.append(f"{len(seen)} of {truth.files} files are in shards")
    wrong += _indexes(dest, sorted(dest.glob(pattern)), len(seen), hashed)
    left = [str(path.relative_to(dest)) for path in (dest / HOME).glob("shards/*")]
    left += [str(path.relative_to(dest)) for path in (dest / HOME).glob("attempts*")]
    left += [path.name for path in dest.glob(".downloader-*")]
    if left:
        wrong.append(f"left behind: {left}")
    if wrong:
        raise Wrong("\n".join([f"{dest}:", *wrong[:40]]))


def _beside(dest: Path, path: Path, keys: list[str], store: str, hashed: bool) -> Iterator[str]:
    """Yield what is wrong with the rows and the stats of the shard ``path``."""
    rows = parquet.read_table(dest / f"{path.stem}{'_items' if store == 'parquet' else ''}.parquet")
    if rows.column("key").to_pylist() != keys or any(rows.column("error").to_pylist()):
        yield f"{path.name}: its rows are not those of its samples"
    stats = json.loads((dest / f"{path.stem}_stats.json").read_bytes())
    content = path.read_bytes()
    md5 = _md5(content) if hashed else ""
    file = {"name": path.name, "md5": md5, "samples": len(keys), "size": len(content)}
    counts = (stats["count"], stats["successes"], stats["failed_to_download"])
    if counts != (len(keys), len(keys), 0) or stats["files"] != [file]:
        yield f"{path.name}: its stats say {counts}, {stats['files']}; it is {file}"


def _indexes(dest: Path, paths: list[Path], samples: int, hashed: bool) -> Iterator[str]:
    index = json.loads((dest / "shards.json").read_bytes())["shardlist"]
    if [each["url"] for each in index] != [path.name for path in paths]:
        yield f"shards.json has {len(index)} shards of {len(paths)}"
    if sum(each["nsamples"] for each in index) != samples:
        yield "shards.json has another number of samples"
    md5s = [_md5(path.read_bytes()) if hashed else None for path in paths]
    if [each.get("md5sum") for each in index] != md5s:
        yield "shards.json has another MD5"
    if sum(json.loads((dest / "sizes.json").read_bytes()).values()) != samples:
        yield "sizes.json has another number of samples"


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
