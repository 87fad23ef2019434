"""One request after another, each with a connection of its own, as ``requests.get`` does it."""

from __future__ import annotations

import requests

from benchmarks.strategies.listing import Job


def fetch(job: Job, name: str) -> None:
    response = requests.get(job.address(name))
    response.raise_for_status()
    job.store(name, response.content)


def main() -> None:
    job = Job.given()
    for name in job.names():
        fetch(job, name)


if __name__ == "__main__":
    main()
