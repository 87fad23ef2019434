"""Run one job from its Config to its Report, in this process, which becomes the supervisor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import NamedTuple

import msgspec

from downloader.config.config import Config
from downloader.engine.coordination import Coordinator
from downloader.engine.source_check import check_source
from downloader.engine.supervisor import Supervisor
from downloader.errors import (
    ROW_FAULTS,
    DestinationError,
    JournalError,
    UnsafeProcess,
)
from downloader.http.client_tls import check_certificates
from downloader.messages import Failure
from downloader.process import isolation, preflight
from downloader.reporting import report as reports
from downloader.reporting.progress import Progress
from downloader.reporting.record import Report
from downloader.sinks.registry import check_place
from downloader.storage.destination import Destination
from downloader.storage.homes import has_journal
from downloader.storage.journal import Journal

__all__ = ["Finished", "run_job"]

_CUT_OFF = (
    "the machine went down while a run was at work here: files that the journal does not vouch for are "
    "fetched again and replaced; `downloader verify` finds what else it may have lost (without --fsync)"
)

_EXPOSED = (
    "`python -m` imports from the current directory, which is DEST: a file there could be run in place of "
    "a Python module; the next time use the command `downloader`, or `python -I -m downloader`"
)


class Finished(NamedTuple):
    """The report of a run, the first few failed files, and the first few faulty lines of the list.

    ``latency``: the counts of a ``core.latency.Histogram``.
    """

    report: Report
    failures: list[Failure]
    faulty: list[str]
    latency: dict[int, int]


def run_job(
    config: Config,
    *,
    ended: Callable[[], bool] | None = None,
    coordinator: Coordinator | None = None,
) -> Finished:
    """Run ``config`` to its end; the report has the outcome, including ``exit_code``.

    Writes --manifest, --failures and --report. Raises ConfigError, InUse, DestinationError, JournalError
    where the run could not begin, UnsafeProcess where this process must not fork (threads, gevent) or where
    --preflight probe finds HTTPS serialized or broken. ``ended`` is polled: it returns whether the process
    that wants the result has exited. ``coordinator``: of a run that is one of many.
    """
    _check_process()
    isolation.guard(config.local_output)
    check_certificates(config)
    if config.preflight == "probe":
        preflight.probe(config.local_output)
    began = monotonic()
    # Before anything is written or forgotten: a run that ends with 2 has changed nothing.
    check_place(config)
    if not config.slice:
        check_source(config, begun=has_journal(config) and not (config.restart or config.relist))
    destination = Destination(config)
    try:
        config = destination.config_of_job()
        progress = Progress(config)
        progress.begin(destination.listed_before, destination.before)
        if destination.cut_off:
            progress.log("warning", _CUT_OFF)
        if config.sink_kind.keeps and isolation.is_exposed(config.local_output):
            progress.log("warning", _EXPOSED)
        if damaged := destination.journal.shards.damaged(superseded=False):
            text = "damaged, as verify has found: to be published anew, with what is whole in it"
            progress.log("warning", _shards_text(damaged, text))
        supervisor = Supervisor(config, destination, progress, abandoned=ended, coordinator=coordinator)
        try:
            run = supervisor.run()
        finally:
            progress.end()
        for detail in run.details:
            progress.log("debug", detail)
        report = reports.make_local(config, destination, run, monotonic() - began)
        if report.exit_code == 0 and destination.journal.unsynced:
            destination.journal.mark_synced()
        try:
            idle = report.exit_code in (0, 1) and not report.stored
            more = destination.finish(complete=report.exit_code == 0, idle=idle)
            report = msgspec.structs.replace(report, replaced=report.replaced + more)
        except (DestinationError, JournalError) as error:
            report = msgspec.structs.replace(reports.with_error(report, error), complete=False)
        if superseded := destination.journal.shards.damaged(superseded=True):
            text = "damaged, and another has its samples: remove the files that verify names, and verify"
            progress.log("warning", _shards_text(superseded, text))
        # From the open journal: the destination may have been moved or removed by now.
        failures = list(islice(destination.journal.failures(), reports.FAILURES_SHOWN))
        faulty = list(islice(_faulty_lines(config, destination.journal), reports.FAILURES_SHOWN + 1))
        report = reports.write_files(
            config,
            report,
            manifest=lambda: _write_manifest(config, destination, progress),
            failures=destination.journal.failures,
        )
        if (displaced := destination.displaced()) is not None:
            report = reports.with_error(report, displaced)
        return Finished(report, failures, faulty, run.latency.counts)
    finally:
        destination.close()


def _shards_text(shards: list[int], text: str) -> str:
    more = f" and {len(shards) - 1:,} more" if len(shards) > 1 else ""
    return f"shard {shards[0]:05d}{more}: {text}"


def _faulty_lines(config: Config, journal: Journal) -> Iterator[str]:
    """Yield the items that failed because of what the list of URLs says.

    Yields none for a source that a person cannot correct.
    """
    if not config.source_kind.editable or journal.failures_by_code().keys().isdisjoint(ROW_FAULTS):
        return
    for failure in journal.failures():
        # A name found bad only when its file was stored has a URL, and is not the fault of a line.
        if failure.code == "bad-url" or (failure.code in ROW_FAULTS and not failure.url):
            yield failure.name


def _write_manifest(config: Config, destination: Destination, progress: Progress) -> None:
    from downloader.reporting.manifest import write_manifest

    write_manifest(config, destination, lambda text: progress.log("warning", text))


def _check_process() -> None:
    """Raise UnsafeProcess if this process must not fork: it must have one thread and no hub."""
    import threading

    if "gevent" in sys.modules or "ssl" in sys.modules:
        from downloader.process.patching import culprit

        module = "gevent" if "gevent" in sys.modules else "ssl"
        raise UnsafeProcess(
            f"{module} is imported in this process, which is to fork workers: {culprit(module)}; "
            "take that import out, or call downloader.download(), which starts a fresh process"
        )
    threads = _threads() or threading.active_count()
    if threads > 1:
        raise UnsafeProcess(
            f"this process has {threads} threads and cannot fork safely; "
            "call downloader.download(), which starts a fresh one"
        )


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0
