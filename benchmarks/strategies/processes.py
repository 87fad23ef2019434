"""Use a pool of processes, one per core; the files of a page are handed out one by one and awaited."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice

import requests

from benchmarks.strategies import sequential
from benchmarks.strategies.listing import Job

_session: requests.Session  # one per process: a session keeps its connection


def begin() -> None:
    global _session  # noqa: PLW0603
    _session = requests.Session()


def fetch(job: Job, name: str) -> None:
    sequential.fetch(job, name, _session.get)


def main() -> None:
    job = Job.given()
    names = job.names()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=begin) as pool:
        while page := list(islice(names, 1000)):
            for done in as_completed([pool.submit(fetch, job, name) for name in page]):
                done.result()


if __name__ == "__main__":
    main()
