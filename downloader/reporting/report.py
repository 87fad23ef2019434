"""Make the report at the end: one record, as text for a person or as JSON for a script."""

from __future__ import annotations

import dataclasses
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.core.bucket_place import is_bucket
from downloader.core.naming import one_line, shown
from downloader.core.redact import redact
from downloader.core.units import show_count, show_size, show_time
from downloader.errors import (
    ConfigError,
    DestinationError,
    DownloaderError,
    JournalError,
    SourceError,
    failure_kind,
)
from downloader.messages import Failure
from downloader.reporting.figures import Figures
from downloader.reporting.published_file import publish
from downloader.reporting.record import Report
from downloader.reporting.stats import RunStats
from downloader.storage.destination import Destination

__all__ = [
    "FAILURES_SHOWN",
    "as_text",
    "exit_code_of",
    "failed_text",
    "make",
    "make_local",
    "state_of",
    "with_error",
    "write_failures",
    "write_files",
    "write_json",
]

FAILURES_SHOWN = 5
"""How many failed files the report for a person names."""


def make(
    figures: Figures,
    *,
    source: str,
    output: str,
    complete: bool,
    listed: int,
    seconds: float,
    workers: int,
    failed_by_error: dict[str, int],
    resumed: bool,
    exit_code: int,
    stopped_by: str | None,
    complete_since: str | None = None,
    nodes: int = 0,
    slices: dict[str, int] | None = None,
) -> Report:
    """Return the report of a run with these ``figures``."""
    tally, cpu = figures.tally, figures.cpu
    return Report(
        source=source,
        destination=output.encode("utf-8", "backslashreplace").decode(),
        complete=complete,
        listed=listed,
        stored=tally.stored,
        skipped=tally.skipped,
        failed=tally.failed,
        unverified=tally.unverified,
        bytes=tally.bytes,
        seconds=round(seconds, 3),
        files_per_second=round(tally.stored / seconds, 1) if seconds else 0.0,
        requests=figures.requests,
        retries=figures.retries,
        attempts_by_error=dict(sorted(figures.errors.items())),
        failed_by_error=failed_by_error,
        latency_ms=figures.latency_ms,
        lanes={"wire": figures.pipelined, "requests": figures.requests - figures.pipelined},
        pipeline_depth={
            "median": figures.median_depth,
            "max": max(figures.depths, default=1),
            "stopped": dict(figures.depth_stops),
        },
        connection_limit={
            "max": figures.max_limit,
            "last": figures.last_limit,
            "stopped": dict(figures.limit_stops),
        },
        connections_peak=figures.connections,
        workers=workers,
        worker_deaths=figures.deaths,
        cpu_seconds=round(sum(cpu.values()), 2),
        cpu_by_role={role: round(seconds, 2) for role, seconds in cpu.items()},
        peak_rss_mb={"supervisor": 0.0, "worker": 0.0, **figures.rss},
        resumed=resumed,
        replaced=tally.replaced,
        encoded=tally.encoded,
        doubtful=tally.doubtful,
        complete_since=complete_since,
        versions=dict(figures.versions),
        preflight=figures.preflight,
        exit_code=exit_code,
        stopped_by=stopped_by,
        nodes=nodes,
        slices=slices or {},
    )


def exit_code_of(*, interrupted: bool, stop: DownloaderError | None, wrong: int) -> int:
    """Return the exit code of a run that ``stop`` has ended, or in which ``wrong`` files are not right."""
    if interrupted:
        return 130
    return stop.exit_code if stop else int(wrong > 0)


def make_local(config: Config, destination: Destination, run: RunStats, seconds: float) -> Report:
    """Return the report of ``run``, on this machine; check that every listed item is accounted for.

    Raises JournalError. Counts that do not add up are a defect, which is always reported, as the reason of
    an incomplete run.
    """
    journal = destination.journal
    listed = journal.position().listed
    before = destination.before
    # Those of batches that are not finished, too: what has failed the next run fetches again.
    recorded = journal.tally(open_too=True)
    stored, failed = run.tally.stored, recorded.failed
    skipped = before.stored + run.tally.skipped
    stop: str | None = redact(str(run.stop), config.secrets) if run.stop else None
    complete = run.ended and not run.interrupted and run.stop is None
    if not complete:
        # Of batches that nobody has finished, what earlier runs have stored is recorded only.
        skipped = max(skipped, recorded.stored - stored)
    wrong = failed + journal.doubtful
    exit_code = exit_code_of(interrupted=run.interrupted, stop=run.stop, wrong=wrong)
    if complete and not (listed == stored + skipped + failed and not journal.open_count()):
        complete, exit_code = False, DownloaderError.exit_code
        stop = (
            f"the sums do not agree: {listed} listed, {stored} stored, {skipped} skipped, "
            f"{failed} failed, {journal.open_count()} batches open; please report this"
        )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    own = Figures(
        cpu={"supervisor": usage.ru_utime + usage.ru_stime},
        rss={"supervisor": round(_peak_rss() / 1024, 1)},
    )
    figures = own + run.figures(config.worker_count)
    tally = msgspec.structs.replace(
        figures.tally, skipped=skipped, failed=failed, doubtful=journal.doubtful
    )
    idle = complete and not stored + run.requests
    return make(
        dataclasses.replace(figures, tally=tally),
        source=config.shown_source,
        output=config.output if is_bucket(config.output) else os.path.abspath(config.output),
        complete=complete,
        listed=listed,
        seconds=seconds,
        workers=config.worker_count,
        failed_by_error=journal.failures_by_code(),
        resumed=destination.resumed,
        complete_since=(destination.complete_since or None) if idle else None,
        exit_code=exit_code,
        stopped_by=stop,
    )


def _peak_rss() -> int:
    """Return the peak memory of this process, in KiB.

    Not that of getrusage, which includes the peak of the parent process between its fork and our exec.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def as_text(report: Report, resume: str = "", failures: Sequence[Failure] = ()) -> str:
    """Return the report as text for a person.

    ``resume`` is the command that continues the job, ``failures`` are the first files that failed.
    """
    lines = [
        f"{shown(report.source)} → {shown(report.destination)}: {state_of(report.complete)}",
        f"  listed   {show_count(report.listed)}",
        f"  stored   {show_count(report.stored)}  "
        f"({show_size(report.bytes)} in {show_time(report.seconds)}, "
        f"{report.files_per_second:,.0f} files/s)",
        f"  skipped  {show_count(report.skipped)}",
        f"  failed   {show_count(report.failed)}",
    ]
    for code, count in report.failed_by_error.items():
        lines.append(f"           {show_count(count)}  {code}: {failure_kind(code).meaning}")
    for failure in failures:
        lines.append(f"           {failed_text(failure)}")
    if failures and report.failed > len(failures):
        lines.append(f"           … and {show_count(report.failed - len(failures))} more; see --failures")
    if report.complete_since:
        lines.append(
            f"  complete since {report.complete_since}: nothing was requested; --relist lists again, and "
            "fetches what is new or missing"
        )
    lines += [f"  {show_count(count)} of the stored {what}" for count, what in _remarks(report) if count]
    latency = report.latency_ms
    if latency["max"]:
        lines.append(
            f"  requests {show_count(report.requests)}, {show_count(report.retries)} retries; "
            f"latency p50 {latency['p50']:.1f} ms, p99 {latency['p99']:.1f} ms, max {latency['max']:.1f} ms"
        )
    if report.lanes["wire"]:
        depth = report.pipeline_depth
        stopped = f" ({'; '.join(depth['stopped'])})" if depth["stopped"] else ""
        lines.append(f"  pipeline median {depth['median']}, max {depth['max']}{stopped}")
    for code, count in report.attempts_by_error.items():
        lines.append(f"           {show_count(count)} attempts ended in {code}")
    memory = report.peak_rss_mb
    lines.append(
        f"  {report.workers} workers, {report.worker_deaths} died; "
        f"{report.connections_peak} connections at most{_limit(report)}; CPU {report.cpu_seconds:.1f} s; "
        f"memory {memory['supervisor']:.0f} MB + {memory['worker']:.0f} MB a worker"
    )
    if report.slices:
        counts = ", ".join(f"{show_count(number)} {what}" for what, number in report.slices.items())
        lines.append(f"  {report.nodes} nodes; slices: {counts}")
    if report.stopped_by:
        lines.append(f"  stopped: {report.stopped_by}")
    if resume:
        lines.append(f"  {resume}")
    return "\n".join(lines)


def failed_text(failure: Failure) -> str:
    """Return the name of a file that failed, with the reason."""
    return f"{shown(failure.name)}: {failure.code} {one_line(failure.detail)}".rstrip()


def state_of(complete: bool) -> str:
    """Return the word for the state of a job; it is complete, too, when every file is stored or failed."""
    return "complete" if complete else "not complete"


def _limit(report: Report) -> str:
    """Return what the workers allowed themselves and why not more, for --connections auto."""
    limit = report.connection_limit
    if "--connections" in limit["stopped"] or not limit["stopped"]:
        return ""
    return f" ({limit['max']} a worker: {'; '.join(limit['stopped'])})"


def _remarks(report: Report) -> tuple[tuple[int, str], ...]:
    """Return what is to be known of some of the stored files, each with their number."""
    return (
        (report.replaced, "replaced files that were there before (--existing keep leaves them)"),
        (report.unverified, "had no length to check against"),
        (
            report.encoded,
            "are in a Content-Encoding that was not requested (--compressed decodes gzip, br and the like)",
        ),
        (
            report.doubtful,
            "may have the bodies of others: their server answers out of order (--restart --pipeline off)",
        ),
    )


def with_error(report: Report, error: DownloaderError) -> Report:
    """Return ``report`` with ``error``, which kept a file about the job from being written.

    The exit code is neither 0 nor 1, although all items are finished: whoever goes on would read an earlier
    file of that name.
    """
    code = error.exit_code if report.exit_code == 1 else report.exit_code or error.exit_code
    return msgspec.structs.replace(report, exit_code=code, stopped_by=report.stopped_by or str(error))


def write_files(
    config: Config,
    report: Report,
    *,
    manifest: Callable[[], None],
    failures: Callable[[], Iterator[Failure]],
) -> Report:
    """Write --manifest, --failures and --report; return ``report``, with the error if there is one.

    Not for a run that was never started: the files may be those of an earlier one.
    """
    if report.exit_code == ConfigError.exit_code:
        return report
    writers: list[tuple[str, Callable[[Report], None]]] = [
        (config.manifest, lambda _: manifest()),
        (config.failures, lambda _: write_failures(failures(), config.failures, config.output)),
        (config.report, lambda report: write_json(report, config.report, config.output)),
    ]
    for path, write in writers:
        try:
            if path:
                write(report)
        except (DestinationError, JournalError, SourceError) as error:
            report = with_error(report, error)
    return report


def write_json(report: Report, path: str, output: str) -> None:
    """Write ``report`` to ``path``, whole or not at all, readable by its owner only; see ``publish``.

    Raises DestinationError.
    """
    text = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    publish(path, lambda file: file.write(text), output)


def write_failures(failures: Iterator[Failure], path: str, output: str) -> None:
    """Write one line of JSON for each failed file to ``path``, streamed. Raises DestinationError."""

    def lines() -> Iterator[bytes]:
        for failure in failures:
            yield (
                msgspec.json.encode(
                    {
                        "name": failure.name,
                        "url": failure.url,
                        "code": failure.code,
                        "detail": failure.detail,
                        "attempts": failure.attempts,
                    }
                )
                + b"\n"
            )

    publish(path, lambda file: file.writelines(lines()), output)
