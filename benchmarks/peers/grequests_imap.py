"""Run grequests: ``imap`` over a generator, with one session whose pool holds all connections."""

from __future__ import annotations

import grequests  # must be first: it patches
import requests
from requests.adapters import HTTPAdapter

from benchmarks.peers.task import Task


def _raise(request: object, error: Exception) -> None:
    raise error


def main() -> None:
    task = Task.given()
    session = requests.Session()
    session.trust_env = False
    session.verify = task.cafile or True
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=task.connections))
    requested = (grequests.get(url, session=session) for url in task.urls)
    for response in grequests.imap(requested, size=task.connections, exception_handler=_raise):
        response.raise_for_status()
        task.store(response.url, response.content)
    task.say()


if __name__ == "__main__":
    main()
