"""Keep the times of the runs of a job, in which it may have changed the files of its items.

They are pairs of ns, by the file system's clock: when a run began, and when it ended, 0 if it has not. Only
runs that have stored something count. What a run, its kill, a power cut or a failing disk has left of an
item was last changed in the time of a run; what was last changed between two runs somebody has changed.
"""

from __future__ import annotations

__all__ = ["MOST", "Times", "begin", "covers", "end"]

Times = tuple[tuple[int, int], ...]

MOST = 1000
"""Runs whose times are kept; the oldest count as one."""


def begin(times: Times, now_ns: int) -> Times:
    """Return ``times`` with a run that begins now. One that was killed lasts until then.

    ``times`` that are empty are those of a new job.
    """
    times = (*end(times, now_ns), (now_ns, 0))
    oldest, others = times[: 1 - MOST], times[1 - MOST :]
    return ((oldest[0][0], oldest[-1][1]), *others) if len(times) > MOST else times


def end(times: Times, now_ns: int) -> Times:
    """Return ``times`` with the run that goes on ended now."""
    return tuple((began, ended or max(began, now_ns)) for began, ended in times)


def covers(times: Times, changed_ns: int) -> bool:
    """Return whether a run was active at ``changed_ns``, or may have been: none is known."""
    return not times or any(
        began <= changed_ns and (not ended or changed_ns <= ended) for began, ended in times
    )
