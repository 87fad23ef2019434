"""The totals of a run."""

from __future__ import annotations

from downloader.messages import Heartbeat, Tally
from downloader.reporting.stats import RunStats


def test_peaks_of_a_worker_and_its_replacement_are_not_summed() -> None:
    run = RunStats()
    for worker, connections in ((0, 8), (1, 5), (0, 7), (2, 6), (3, 2)):
        run.record_heartbeat(worker, Heartbeat(Tally(), connections))
    assert run.connections_at_most(2) == 8 + 6
    assert run.connections_at_most(10) == 8 + 5 + 6 + 2
