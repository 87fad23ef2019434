"""Cut a source into slices: a process of its own, which forks the feeder as a local run does.

It writes one line of JSON for each event to standard output: ``slice`` (a Slice is there), ``log``,
``error``, ``beat`` (once a second), ``ended``. It goes on behind the last slice of the plan. A slice that
is not complete when the process ends is read again; when the source breaks off, what was read is a slice.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from time import monotonic
from typing import Protocol

import msgspec

from downloader.cluster.plan.configs import changed
from downloader.cluster.plan.plan import PlanDirectory, Slice
from downloader.cluster.plan.plan_files import Writer
from downloader.config.config import Config
from downloader.engine.source_reader import FeederLost, read_batches
from downloader.errors import DownloaderError, InUse, SourceError
from downloader.messages import Batch, Continue, Types
from downloader.process.spawn import die_with
from downloader.sources.slice_file import write_items

__all__ = ["SlicerJob", "main", "slice_source"]

_BEAT_EVERY = 1.0  # seconds


class SlicerJob(msgspec.Struct, frozen=True):
    """What the process is to do. ``config``: see ``Config.encode``. ``number``: slices that are there.

    ``last``: the last of them. The plan is not asked: in a bucket it cannot be until the feeder is forked.
    """

    config: bytes
    name_key: bytes
    number: int = 0
    last: Slice = Slice("", 0)


class _Say(Protocol):
    def __call__(self, **event: object) -> None: ...


def main() -> int:
    """Run the process: read a SlicerJob from the descriptor in argv[1]; die with the process in argv[2]."""
    die_with(int(sys.argv[2]))
    with open(int(sys.argv[1]), "rb") as pipe:
        job = msgspec.msgpack.decode(pipe.read(), type=SlicerJob)
    out = os.dup(1)
    os.dup2(2, 1)

    def say(**event: object) -> None:
        os.write(out, json.dumps(event).encode("ascii") + b"\n")

    try:
        slice_source(Config.decode(job.config), job, say)
    except FeederLost as error:
        say(event="log", log=["warning", str(error)])
        return 1  # the driver starts another one of us
    except DownloaderError as error:
        say(event="error", text=str(error), exit_code=error.exit_code)
    except OSError as error:
        say(event="error", text=f"the plan cannot be written: {error}", exit_code=DownloaderError.exit_code)
    return 0


def slice_source(config: Config, job: SlicerJob, say: _Say) -> None:
    """Read the source from behind the last slice to its end, and write slices. Raises DownloaderError."""
    config = changed(config, column_types=job.last.types)
    beaten = 0.0

    def beat() -> None:
        nonlocal beaten
        if monotonic() - beaten >= _BEAT_EVERY:
            beaten = monotonic()
            say(event="beat")

    cutter = _Cutter(config, job.number, job.last, say)
    start = Continue(job.last.cursor, job.last.listed, job.last.seq, config.slice_files)
    try:
        for message in read_batches(
            *(config, job.name_key, start, lambda level, text: say(event="log", log=[level, text])), beat
        ):
            if isinstance(message, Types):
                cutter.types = message.text
            elif isinstance(message, Batch):
                cutter.add(message)
            else:
                cutter.cut(ended=True, limited=message.limited)
    except SourceError:
        cutter.cut()
        raise
    finally:
        cutter.abort()
    say(event="ended")


class _Cutter:
    def __init__(self, config: Config, number: int, last: Slice, say: _Say) -> None:
        self._config = config
        self._size = config.slice_files
        self._number = number
        self._last = last
        self._say = say
        self.types = config.column_types
        self._writer: Writer | None = None
        self._count = 0
        self._first = last.seq
        self._position = -1.0

    def add(self, batch: Batch) -> None:
        if self._writer is None:
            self._writer = self._begin()
        if batch.count:
            write_items(self._writer.file, batch.items)
        self._count += batch.count
        self._position = batch.position
        self._last = Slice("", 0, (), batch.cursor, self._last.listed + batch.count, batch.seq + 1)
        if self._last.listed % self._size == 0 and self._count:
            self.cut()

    def cut(self, *, ended: bool = False, limited: bool = False) -> None:
        if self._writer is None:
            if not ended:
                return
            self._writer = self._begin()
        self._writer.publish()
        self._writer = None
        name = f"{self._number:08d}"
        slice_ = msgspec.structs.replace(
            self._last, name=name, count=self._count, first=self._first, ended=ended, limited=limited
        )
        slice_ = msgspec.structs.replace(slice_, types=self.types)
        if self._directory.add(slice_) is None:
            raise InUse(
                f"{self._directory.root}: another driver has made the slice {name}; stop one of the two"
            )
        self._say(event="slice", name=name, count=self._count, position=self._position)
        self._number += 1
        self._count = 0
        self._first = self._last.seq

    @functools.cached_property
    def _directory(self) -> PlanDirectory:
        """The plan, opened when the feeder is forked: that of a bucket starts threads."""
        config = self._config
        return PlanDirectory(config.journal_root, config.journal_access)

    def _begin(self) -> Writer:
        return self._directory.items_writer(f"{self._number:08d}")

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()
