"""Cut a source into slices: a process of its own, which forks the feeder as a local run does.

It writes one line of JSON for each event to standard output: ``slice`` (a Head is there), ``log``,
``error``, ``ended``. It goes on behind the last slice of the plan. A slice that is not complete when the
process ends is read again; when the source breaks off, what was read is a slice, too.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import msgspec

from downloader.cluster.plan import Head, PlanDirectory
from downloader.config.config import Config
from downloader.engine.source_reader import read_batches
from downloader.errors import DownloaderError, SourceError
from downloader.messages import Batch, Continue
from downloader.process.spawn import die_with
from downloader.sources.slice_file import SliceWriter
from downloader.storage.destination import home_of
from downloader.storage.name_key import name_key

__all__ = ["main", "slice_source"]


def main() -> int:
    """Run the process: read a Config from the descriptor in argv[1]; die with the process in argv[2]."""
    die_with(int(sys.argv[2]))
    with open(int(sys.argv[1]), "rb") as pipe:
        config = msgspec.convert(json.loads(pipe.read()), Config)
    out = os.dup(1)
    os.dup2(2, 1)

    def say(**event: Any) -> None:
        os.write(out, json.dumps(event).encode("ascii") + b"\n")

    try:
        slice_source(config, say)
    except DownloaderError as error:
        say(event="error", text=str(error), exit_code=error.exit_code)
    except OSError as error:
        say(event="error", text=f"the plan cannot be written: {error}", exit_code=DownloaderError.exit_code)
    return 0


def slice_source(config: Config, say: Any) -> None:
    """Read the source from behind the last slice to its end, and write slices. Raises DownloaderError."""
    directory = PlanDirectory(config.journal_root)
    heads = [head for head in directory.heads() if not head.covers]
    last = heads[-1] if heads else Head("", 0)
    cutter = _Cutter(directory, config.slice_files, len(heads), last, say)
    start = Continue(last.cursor, last.listed, last.seq, config.slice_files)
    key = name_key(home_of(config.journal_root))
    try:
        for message in read_batches(
            config, key, start, lambda level, text: say(event="log", log=[level, text])
        ):
            if isinstance(message, Batch):
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
    def __init__(self, directory: PlanDirectory, size: int, number: int, last: Head, say: Any) -> None:
        self._directory = directory
        self._size = size
        self._number = number
        self._last = last
        self._say = say
        self._writer: SliceWriter | None = None
        self._count = 0
        self._first = last.seq
        self._position = -1.0

    def add(self, batch: Batch) -> None:
        if self._writer is None:
            self._writer = SliceWriter(self._directory.items(f"{self._number:08d}"))
        if batch.count:
            self._writer.write(batch.items)
        self._count += batch.count
        self._position = batch.position
        self._last = Head("", 0, (), batch.cursor, self._last.listed + batch.count, batch.seq + 1)
        if self._last.listed % self._size == 0 and self._count:
            self.cut()

    def cut(self, *, ended: bool = False, limited: bool = False) -> None:
        if self._writer is None:
            if not ended:
                return
            self._writer = SliceWriter(self._directory.items(f"{self._number:08d}"))
        self._writer.publish()
        self._writer = None
        name = f"{self._number:08d}"
        head = msgspec.structs.replace(
            self._last, name=name, count=self._count, first=self._first, ended=ended, limited=limited
        )
        self._directory.add(head)
        self._say(event="slice", name=name, count=self._count, position=self._position)
        self._number += 1
        self._count = 0
        self._first = self._last.seq

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()
