"""The figures of several runs, added up."""

from __future__ import annotations

from functools import reduce

import msgspec

from downloader.core.latency import Histogram
from downloader.errors import DestinationError
from downloader.messages import Heartbeat, Tally
from downloader.reporting import report as reports
from downloader.reporting.figures import Figures, figures_of
from downloader.reporting.record import Report
from downloader.reporting.stats import RunStats


def run_of(worker: int, depths: dict[int, int], *, stored: int, seconds: float) -> RunStats:
    run = RunStats(tally=Tally(stored=stored, bytes=10 * stored), requests=sum(depths.values()))
    run.pipelined, run.errors = run.requests, {"reset": stored}
    run.latency.add(seconds, run.requests)
    beat = Heartbeat(Tally(), 8 * (worker + 1))
    run.record_heartbeat(worker, msgspec.structs.replace(beat, depths=depths, stops={"no gain": 1}))
    return run


def report_of(figures: Figures) -> Report:
    return reports.make(
        figures,
        source="urls.txt",
        output="DEST",
        complete=True,
        listed=figures.tally.stored,
        seconds=2.0,
        workers=1,
        failed_by_error={},
        resumed=False,
        exit_code=0,
        stopped_by=None,
    )


def test_figures_of_slices_are_those_of_one_run() -> None:
    runs = [
        run_of(0, {1: 1, 8: 100}, stored=101, seconds=0.1),
        run_of(1, {64: 300}, stored=300, seconds=0.4),
    ]
    parts = [run.figures(1) for run in runs]
    whole = reduce(Figures.__add__, parts, Figures())
    report = report_of(whole)
    assert (report.stored, report.bytes, report.requests, report.files_per_second) == (
        401,
        4010,
        401,
        200.5,
    )
    assert report.lanes == {"wire": 401, "requests": 0}
    assert report.attempts_by_error == {"reset": 401}
    assert report.pipeline_depth == {"median": 64, "max": 64, "stopped": {"no gain": 2}}
    assert report.connections_peak == 16
    together = Histogram()
    for run in runs:
        together.merge(run.latency.counts)
    assert report.latency_ms["p50"] == round(together.percentile(50.0) * 1000, 3) > 300
    assert report.latency_ms["max"] == round(together.max * 1000, 3)


def test_report_of_a_slice_gives_its_figures_back() -> None:
    figures = run_of(0, {1: 1, 8: 100, 64: 7}, stored=108, seconds=0.1).figures(1)
    report = report_of(figures)
    again = report_of(figures_of(report, figures.latency))
    assert again == report
    assert report_of(Figures() + figures_of(report, figures.latency)) == report


def test_exit_code() -> None:
    stop = DestinationError("full")
    assert reports.exit_code_of(interrupted=True, stop=stop, wrong=1) == 130
    assert reports.exit_code_of(interrupted=False, stop=stop, wrong=1) == stop.exit_code
    assert reports.exit_code_of(interrupted=False, stop=None, wrong=2) == 1
    assert reports.exit_code_of(interrupted=False, stop=None, wrong=0) == 0
