"""Send one request after another, each on a connection of its own, as ``requests.get`` does it."""

from __future__ import annotations

from collections.abc import Callable

import requests

from benchmarks.strategies.listing import Job


def fetch(job: Job, name: str, get: Callable[[str], requests.Response] = requests.get) -> None:
    response = get(job.address(name))
    response.raise_for_status()
    job.store(name, response.content)


def main() -> None:
    job = Job.given()
    for name in job.names():
        fetch(job, name)


if __name__ == "__main__":
    main()
