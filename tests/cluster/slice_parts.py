"""Make plans of slices with shards, and run slices without a cluster, for the tests of this directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from downloader.cluster.driver.job_shards import DriverShards
from downloader.cluster.driver.retry import failed_items, plan_again
from downloader.cluster.node.task import AttemptResult, PlanAt, SliceTask, run_slice
from downloader.cluster.plan import configs
from downloader.cluster.plan.plan import Plan, PlanDirectory, Slice, SliceRecord
from downloader.config.config import Config
from downloader.core.slices import plan_digest
from downloader.core.words import Existing
from downloader.messages import Item
from downloader.sinks.shards.options import shard_options
from downloader.sources.slice_file import write_items
from downloader.storage.places import foreign_before

__all__ = ["ShardPlan", "environ", "run_attempt"]

DIGEST = plan_digest({"plan": 1})


@dataclass
class ShardPlan:
    """A plan of slices with shards of ``shard_files`` items; the source is ``source``.

    ``bucket``: where the shards go, in place of ``dest``, which then has the plan only. ``existing``: see
    --existing.
    """

    dest: Path
    source: str
    shard_files: int
    options: dict[str, Any]
    bucket: str = ""
    existing: Existing = "replace"

    def __post_init__(self) -> None:
        self.dest.mkdir(exist_ok=True)
        self._since = foreign_before(str(self.dest))
        (self.dest / ".downloader").mkdir(exist_ok=True)
        self.directory = PlanDirectory(str(self.dest))
        plan = Plan(
            DIGEST,
            self.source,
            self.bucket or str(self.dest),
            1000,
            0,
            store=self.config.store,
            id="a" * 32,
        )
        plan = msgspec.structs.replace(plan, identity=self.config.sink_kind.identity(self.config))
        self.directory.open(plan, restart=False)
        self.by_name: dict[str, Slice] = {}
        self.first = 0

    @property
    def config(self) -> Config:
        """Return the Config of the job."""
        options = {"shard_files": self.shard_files, **self.options}
        store = options.pop("store", "tar")
        if store == "files":
            options = {}
        return Config(
            source=self.source,
            output=self.bucket or str(self.dest),
            journal=str(self.dest) if self.bucket else "",
            store=store,
            store_options=options,
            existing=self.existing,
            connections=4,
            pipeline=1,  # so that few requests are in flight when an attempt is killed
            slice_files=1000,
        )

    @property
    def slices(self) -> bytes:
        """Return the Config of its slices, encoded."""
        return configs.for_slices(self.config, 1, 0, self._since).encode()

    def add(self, names: list[str], *, ended: bool = False) -> str:
        """Add a slice of the source with these items; return its name."""
        name = f"{len(self.by_name):08d}"
        writer = self.directory.items_writer(name)
        batches = [names[at : at + self.shard_files] for at in range(0, len(names), self.shard_files)]
        for batch in batches:
            write_items(writer.file, msgspec.msgpack.encode([Item(each) for each in batch]))
        writer.publish()
        behind = self.first + len(batches)
        slice_ = self.directory.add(Slice(name, len(names), seq=behind, first=self.first, ended=ended))
        assert slice_ is not None
        self.first, self.by_name[name] = behind, slice_
        return name

    def again(self, *names: str) -> Slice:
        """Make a slice of what has failed in these, and return it."""
        failed = [failed_items(self.directory, self.by_name[name], self.done(name)) for name in names]
        options = None if self.config.store == "files" else shard_options(self.config)
        (slice_,) = plan_again(self.directory, failed, self.by_name, options, 1000)
        self.by_name[slice_.name] = slice_
        return slice_

    def attempt(self, name: str, scratch: Path) -> AttemptResult:
        """Run a slice here."""
        return run_attempt(name, str(self.dest), str(scratch), self.slices, "here")

    def done(self, name: str) -> SliceRecord:
        """Return the record of a slice that is done."""
        done = self.directory.done(name)
        assert done is not None
        return done

    def drive(self) -> int:
        """Do what a driver does with shards at its start and its end; return how many files it replaced."""
        shards = DriverShards(self.config)
        for name in self.by_name:
            if (done := self.directory.done(name)) is not None:
                shards.add(done)
        shards.recover(self.by_name)
        shards.finish(self.by_name)
        return shards.replaced


def run_attempt(name: str, dest: str, scratch: str, config: bytes, node: str) -> AttemptResult:
    """Run the slice ``name``, in this process."""
    task = SliceTask(name, DIGEST, PlanAt(dest), scratch, 0.0, f"slices/{name}.items")
    return run_slice(task, config, None, node)


@contextmanager
def environ(**values: str) -> Iterator[None]:
    """Set variables of the environment, which processes inherit."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


Until = Callable[[Callable[[], object]], None]
