"""Provide what the tests of the scheduler share."""

from __future__ import annotations

from dataclasses import dataclass

from downloader.core.host import Host
from downloader.core.scheduler import Scheduler

__all__ = ["Schedulable", "fill", "keys", "take_all"]


@dataclass(eq=False)
class Schedulable:
    """The jobs that are scheduled here."""

    host: Host
    solo: bool = False
    path: object = None
    demotions: int = 0


def fill(
    schedule: Scheduler[Schedulable], key: str, count: int, *, solo: bool = False
) -> list[Schedulable]:
    jobs = [Schedulable(schedule.host(key), solo) for _ in range(count)]
    for job in jobs:
        schedule.add(job)
    return jobs


def take_all(schedule: Scheduler[Schedulable], now: float = 0.0) -> list[Schedulable]:
    jobs = []
    while (job := schedule.take(now)) is not None:
        jobs.append(job)
    return jobs


def keys(jobs: list[Schedulable]) -> str:
    return "".join(job.host.key for job in jobs)
