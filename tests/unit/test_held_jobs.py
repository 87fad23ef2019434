"""Jobs that wait outside the schedule until it is known whether they may start."""

from __future__ import annotations

from dataclasses import dataclass

from downloader.core.host import Host
from downloader.core.scheduler import Scheduler


@dataclass(eq=False)
class Job:
    """What is scheduled here."""

    host: Host
    solo: bool = False
    path: object = None
    demotions: int = 0


def test_held_jobs_rest() -> None:
    """They are no work that could start, so that more is asked for; and they are not forgotten."""
    schedule: Scheduler[Job] = Scheduler(4, 4)
    jobs = [Job(schedule.host("a")) for _ in range(3)]
    for job in jobs:
        schedule.hold(job)
    assert (schedule.unstarted, schedule.resting, jobs[0].host.held) == (3, 3, 3)
    assert schedule.take(0.0) is None
    for job in jobs[:2]:
        schedule.hold(job, -1)
    schedule.add(jobs[0])
    assert (schedule.unstarted, schedule.resting, jobs[0].host.held) == (2, 1, 1)
    assert schedule.take(0.0) is jobs[0]


def test_host_with_held_jobs_is_kept() -> None:
    """Its state would be lost, and a second one of the same name would have slots of its own."""
    schedule: Scheduler[Job] = Scheduler(4, 4)
    job = Job(schedule.host("held"))
    schedule.hold(job)
    for number in range(30_000):
        schedule.host(f"idle {number}")
    assert schedule.host("held") is job.host
    schedule.hold(job, -1)
    for number in range(30_000):
        schedule.host(f"more {number}")
    assert schedule.host("held") is not job.host
