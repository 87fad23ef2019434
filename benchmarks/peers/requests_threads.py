"""Run requests in threads: one thread per connection, each with a session of its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import requests

from benchmarks.peers.task import Task


def main() -> None:
    task = Task.given()
    own = threading.local()
    counted = threading.Lock()

    def begin() -> None:
        own.session = requests.Session()
        own.session.trust_env = False
        own.session.verify = task.cafile or True

    def fetch(url: str) -> None:
        response = own.session.get(url)
        response.raise_for_status()
        with counted:
            task.store(url, response.content)

    with ThreadPoolExecutor(task.connections, initializer=begin) as pool:
        for _ in pool.map(fetch, task.urls):
            pass
    task.say()


if __name__ == "__main__":
    main()
