"""Make the report at the end: one record, as text for a person or as JSON for a script."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.core.bucket_place import is_bucket
from downloader.core.naming import one_line, shown
from downloader.core.redact import redact
from downloader.core.units import show_count, show_size, show_time
from downloader.errors import DownloaderError, failure_kind
from downloader.messages import Failure
from downloader.reporting.published_file import publish
from downloader.reporting.record import Report
from downloader.reporting.stats import RunStats
from downloader.storage.destination import Destination

__all__ = ["as_text", "failed_text", "make", "state_of", "with_error", "write_failures", "write_json"]


def make(config: Config, destination: Destination, run: RunStats, seconds: float) -> Report:
    """Return the report of ``run``; check that every listed item is accounted for.

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
    exit_code = 130 if run.interrupted else run.stop.exit_code if run.stop else int(wrong > 0)
    if complete and not (listed == stored + skipped + failed and not journal.open_count()):
        complete, exit_code = False, DownloaderError.exit_code
        stop = (
            f"the sums do not agree: {listed} listed, {stored} stored, {skipped} skipped, "
            f"{failed} failed, {journal.open_count()} batches open; please report this"
        )
    latency = run.latency
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = {"supervisor": usage.ru_utime + usage.ru_stime, **run.cpu_seconds}
    return Report(
        source=config.shown_source,
        destination=_shown_path(config.output),
        complete=complete,
        listed=listed,
        stored=stored,
        skipped=skipped,
        failed=failed,
        unverified=run.tally.unverified,
        bytes=run.tally.bytes,
        seconds=round(seconds, 3),
        files_per_second=round(stored / seconds, 1) if seconds else 0.0,
        requests=run.requests,
        retries=run.retries,
        attempts_by_error=dict(sorted(run.errors.items())),
        failed_by_error=journal.failures_by_code(),
        latency_ms={
            **{
                name: round(latency.percentile(p) * 1000, 3)
                for name, p in (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9))
            },
            "max": round(latency.max * 1000, 3),
        },
        lanes={"wire": run.pipelined, "requests": run.requests - run.pipelined},
        pipeline_depth=run.depths(),
        connection_limit=run.connection_limits(),
        connections_peak=run.connections_at_most(config.worker_count),
        workers=config.worker_count,
        worker_deaths=run.deaths,
        cpu_seconds=round(sum(cpu.values()), 2),
        cpu_by_role={role: round(seconds, 2) for role, seconds in cpu.items()},
        peak_rss_mb={
            "supervisor": round(_peak_rss() / 1024, 1),
            "worker": round(run.worker_rss / 1024, 1),
        },
        resumed=destination.resumed,
        replaced=run.tally.replaced,
        encoded=run.tally.encoded,
        doubtful=journal.doubtful,
        complete_since=(destination.complete_since or None)
        if complete and not stored + run.requests
        else None,
        versions=run.versions,
        preflight=run.preflight,
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
        stopped = "; ".join(depth["stopped"])
        lines.append(f"  pipeline median {depth['median']}, max {depth['max']} ({stopped})")
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


def _shown_path(output: str) -> str:
    path = output if is_bucket(output) else os.path.abspath(output)
    return path.encode("utf-8", "backslashreplace").decode()
