"""Bugs in the watch over processes that others wait for, and in what is left of a lost cluster."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

STOPPED = "tests/faults/test_stopped_processes.py::"
SILENCE = "tests/unit/test_core_silence.py::"
SLICES = "tests/cluster/test_slice_stops.py::"
LOST = "tests/cluster/test_ray_lost.py::"

KNOWN = (
    Mutant(
        "a publisher that stops is waited for",
        "a run stands still for ever when its publisher does",
        "_Process.ask",
        "watch.stalled()",
        "False",
        (f"{STOPPED}test_publisher_that_stops_is_replaced",),
        20,
    ),
    Mutant(
        "only messages are signs of life",
        "a publisher that works on a large shard for half a minute is killed, and the run ends",
        "Silence.look",
        "signs is not None and before is not None and (signs[1:] != before[1:])",
        "False",
        (
            f"{SILENCE}test_work_is_a_sign",
            f"{STOPPED}test_publisher_that_works_for_long_is_left_alone",
        ),
    ),
    Mutant(
        "time in which the watcher was stopped counts",
        "after a suspend to RAM all that a process waits for is killed",
        "Silence.look",
        "min(max(now - self._last, 0.0), _MAX_INTERVAL)",
        "now - self._last",
        (f"{SILENCE}test_time_in_which_the_watcher_was_stopped_does_not_count",),
    ),
    Mutant(
        "a feeder that stops is waited for",
        "a dry run, and a driver whose slicer waits so, stand still for ever",
        "_messages",
        "watch.stalled()",
        "False",
        (
            f"{STOPPED}test_feeder_that_stops_in_a_dry_run",
            f"{STOPPED}test_check_of_a_list_that_stops",
        ),
        20,
    ),
    Mutant(
        "a process for a bucket that stops is waited for",
        "a run stands still for ever at its beginning or at its end",
        "run_watched",
        "if selector.get_map() and watch.stalled():\n"
        "    raise Stalled(f'its process {stalled_text(limit)}')",
        "pass",
        (f"{STOPPED}test_process_for_a_bucket_that_stops",),
        20,
    ),
    Mutant(
        "a slice that stops is waited for",
        "a job over many machines stands still for ever with one of its slices",
        "_watch",
        "if watch.stalled():\n    return True",
        "pass",
        (f"{SLICES}test_slice_that_stops_is_killed_and_goes_on",),
        40,
    ),
    Mutant(
        "a full scratch disk is not named",
        "slices die with exit code 1, and nobody knows why",
        "main",
        "sys.stderr.write(_full(job, error) + (f' ({stopped})' if stopped else '') + '\\n')",
        "pass",
        (f"{SLICES}test_full_scratch_disk_is_named[100k]",),
    ),
    Mutant(
        "a local cluster outlives its driver",
        "Ray's agents run on for ever after a driver was killed",
        "_end_all",
        "below = _below(os.getpid())",
        "below = []",
        ("tests/cluster/test_ray_driver.py::test_status_after_a_driver_has_died",),
        120,
    ),
    Mutant(
        "a local cluster without a token",
        "every user of the machine may have code run as the one who downloads",
        "_set_apart",
        "os.environ['RAY_AUTH_MODE'] = 'token'",
        "pass",
        (f"{LOST}test_local_cluster_is_ours_alone_and_its_loss_is_told",),
        180,
    ),
)
