"""Run one slice: a fresh process on a node, which is an ordinary run with a Config from its standard input.

Standard input has frames: first a SliceJob, then orders of the coordinator. Standard output has frames: a
SliceProgress once a second, sooner when a host pauses. How it ended is in the file ``SliceJob.result`` and
nowhere else: an exit code can be lost, and a process that is killed leaves no file.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import BinaryIO, NoReturn

import msgspec

from downloader.cluster.plan.stored import write_stored
from downloader.config.config import Config
from downloader.config.options import OutputOptions
from downloader.core.file_errors import advice
from downloader.core.frames import Unpacker, pack
from downloader.engine.coordination import Order
from downloader.engine.job import Finished, run_job
from downloader.errors import DownloaderError
from downloader.files.directory import open_home
from downloader.messages import HostPause, Tally
from downloader.process.spawn import die_with
from downloader.process.standard_streams import outlive_stderr
from downloader.reporting.manifest_rows import RowsMade
from downloader.reporting.record import Report
from downloader.sinks.shards.staging import StagedShard
from downloader.storage.homes import home_of
from downloader.storage.journal import Journal

__all__ = ["SliceJob", "SliceProgress", "SliceResult", "encode_order", "main"]

PROGRESS_EVERY = 1.0  # seconds
_PAUSES_EVERY = 0.1  # seconds; a pause of a host does not wait for the next second
_MAX_PAUSES = 10  # names of hosts have up to 253 characters
_PIPE_BUF = 4096
_encode = msgspec.msgpack.encode
_decode_order = msgspec.msgpack.Decoder(Order).decode


class SliceJob(msgspec.Struct, frozen=True):
    """What the process is to do. ``config`` is the JSON of a Config; ``result`` is for a SliceResult."""

    config: bytes
    result: str
    parent: int


class SliceResult(msgspec.Struct, frozen=True):
    """How a run of a slice ended: a report, or the error that kept it from beginning.

    ``failures``: file with what failed, ``stored``: with what is stored, ``manifest``: with the rows of
    --manifest, of which there are ``rows``; "" where there is none. They are beside the result.
    """

    report: Report | None = None
    latency: dict[int, int] = {}
    error: str = ""
    failures: str = ""
    shards: list[StagedShard] = []
    manifest: str = ""
    rows: RowsMade = RowsMade()
    stored: str = ""


class SliceProgress(msgspec.Struct, frozen=True, array_like=True):
    """A sign of life: what the run has done so far, and hosts that pause since the last one."""

    tally: Tally
    pauses: list[HostPause] = []


def encode_order(order: Order) -> bytes:
    """Return the frame of an order."""
    return pack(_encode(order))


def main() -> NoReturn:
    """Run the process."""
    outlive_stderr()
    link = _Link()
    job = msgspec.msgpack.decode(link.first(), type=SliceJob)
    die_with(job.parent)
    try:
        config = Config.decode(job.config)
        finished = run_job(config, ended=link.closed, coordinator=link)
        result = _result(config, finished, Path(job.result))
    except DownloaderError as error:
        result = SliceResult(error=str(error))
    except OSError as error:
        result = SliceResult(error=_full(job, error))
    try:
        _write(Path(job.result), msgspec.json.encode(result))
    except OSError as error:
        # The disk with the journal is full; its last line says so on the other end.
        stopped = result.report.stopped_by if result.report else result.error
        sys.stderr.write(_full(job, error) + (f" ({stopped})" if stopped else "") + "\n")
        sys.stderr.flush()
        os._exit(1)
    sys.stderr.flush()
    # All is written. To take the modules down costs a slice up to a tenth of its fixed CPU time.
    os._exit(0)


def _full(job: SliceJob, error: OSError) -> str:
    return f"{error.filename or os.path.dirname(job.result)}: {advice(error)}"


def _result(config: Config, finished: Finished, path: Path) -> SliceResult:
    report = finished.report
    result = SliceResult(report, finished.latency)
    if report.failed and report.complete:
        failures = path.with_suffix(".jsonl")
        with _created(failures) as file:
            file.writelines(_failed(config))
        result = msgspec.structs.replace(result, failures=os.fspath(failures))
    if report.complete and config.sink_kind.keeps:
        stored = path.with_suffix(".stored")
        with _created(stored) as file, open_home(home_of(config.journal_root)) as home:
            write_stored(home, file)
        result = msgspec.structs.replace(result, stored=os.fspath(stored))
    if report.complete and config.sink_kind.shard_items(config):
        # Imported where they are needed: a slice's fixed cost is that of its imports.
        from downloader.cluster.node.attempt_shards import shards_of_slice

        result = msgspec.structs.replace(result, shards=shards_of_slice(config))
    if config.slice.keep_records and report.complete:
        from downloader.cluster.node.slice_rows import write_slice_rows

        rows = path.with_suffix(".rows")
        with _created(rows) as file:
            made = write_slice_rows(config, file)
        result = msgspec.structs.replace(result, manifest=os.fspath(rows), rows=made)
    return result


class _Link:
    """The coordinator, over standard input and output; see ``Coordinator``."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        devnull = os.open(os.devnull, os.O_RDWR)
        os.dup2(devnull, 0)
        os.dup2(2, 1)
        os.close(devnull)
        self._unpacker = Unpacker()
        self._orders: list[bytes] = []
        self._pauses: list[HostPause] = []
        self._told = 0.0
        self._closed = False

    def first(self) -> bytes:
        """Wait for the first frame and return it."""
        while not self._orders:
            self._read()
            if self._closed:
                sys.exit(1)
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        return self._orders.pop(0)

    def _read(self) -> None:
        try:
            while not self._closed:
                data = os.read(self._in, 1 << 16)
                self._closed = not data
                self._orders += self._unpacker.feed(data)
                if os.get_blocking(self._in):
                    return
        except BlockingIOError:
            pass

    def closed(self) -> bool:
        """Return whether the other end has exited; the run then drains."""
        return self._closed

    def paused(self, pause: HostPause) -> None:
        """See ``Coordinator``."""
        self._pauses.append(pause)

    def exchange(self, count: Callable[[], Tally]) -> list[Order]:
        """See ``Coordinator``."""
        self._read()
        if monotonic() - self._told >= (_PAUSES_EVERY if self._pauses else PROGRESS_EVERY):
            self._told = monotonic()
            self._tell(count())
        orders, self._orders = [_decode_order(each) for each in self._orders], []
        return orders

    def _tell(self, tally: Tally) -> None:
        while True:
            frame = pack(_encode(SliceProgress(tally, self._pauses[:_MAX_PAUSES])))
            try:
                # Shorter than PIPE_BUF: written whole, or not at all and again next time.
                if len(frame) <= _PIPE_BUF:
                    os.write(self._out, frame)
            except (BlockingIOError, BrokenPipeError):
                return
            del self._pauses[:_MAX_PAUSES]
            if not self._pauses:
                return


def _failed(config: OutputOptions) -> Iterator[bytes]:
    """Yield a line for each failed file, with its number in the slice."""
    with (
        open_home(home_of(config.journal_root)) as home,
        contextlib.closing(Journal(home, read_only=True)) as journal,
    ):
        before = 0
        for row in journal.batches():
            for failure in journal.failures(row.seq):
                record = {"item": before + failure.index}
                record |= {
                    name: getattr(failure, name) for name in ("name", "url", "code", "detail", "attempts")
                }
                yield msgspec.json.encode(record) + b"\n"
            before += row.count


def _created(path: Path) -> BinaryIO:
    with open_home(path.parent) as scratch:
        return (scratch / path.name).writer()


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}")
    with _created(temporary) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    with open_home(path.parent) as scratch:
        (scratch / temporary.name).rename(path.name)
