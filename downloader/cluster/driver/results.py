"""Write what a job over many machines leaves beside its files: --manifest, --failures, --report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice

from downloader.cluster.driver.manifest import write_cluster_manifest
from downloader.cluster.plan.plan import PlanDirectory, Slice, SliceRecord
from downloader.config.config import Config
from downloader.engine.job import Finished
from downloader.errors import ConfigError, DestinationError, JournalError, SourceError
from downloader.messages import Failure
from downloader.reporting import report as reports
from downloader.reporting.record import Report

__all__ = ["write_results"]

_FAILURES_SHOWN = 5


def write_results(
    config: Config,
    directory: PlanDirectory,
    slices: Collection[Slice],
    records: Collection[SliceRecord],
    report: Report,
    log: Callable[[str], object],
) -> Finished:
    """Write the files that ``config`` names; return ``report``, with the error if one cannot be written.

    ``slices`` are all of them; ``records`` are those whose failures count. ``log`` gets lines about
    what is not known.
    """
    shown = list(islice(_failures(directory, records), _FAILURES_SHOWN))
    if report.exit_code == ConfigError.exit_code:
        return Finished(report, shown, [], {})  # nothing was started: the files may be an earlier run's
    try:
        if config.manifest:
            write_cluster_manifest(config, directory, list(slices), log)
        if config.failures:
            reports.write_failures(_failures(directory, records), config.failures, config.output)
        if config.report:
            reports.write_json(report, config.report, config.output)
    except (DestinationError, JournalError, SourceError) as error:
        report = reports.with_error(report, error)
    return Finished(report, shown, [], {})


def _failures(directory: PlanDirectory, records: Collection[SliceRecord]) -> Iterator[Failure]:
    for done in records:
        for each in directory.failed(done):
            yield each.failure
