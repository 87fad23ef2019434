"""Run urllib.request in threads, as img2dataset does: a connection for each file, each wait limited to 10 s
(or to the number of seconds that is given)."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
import urllib.request
from multiprocessing.pool import ThreadPool

from benchmarks.peers.task import Task


def main() -> None:
    task = Task.given()
    context = ssl.create_default_context(cafile=task.cafile) if task.cafile else None
    timeout = float(task.options[0]) if task.options else 10.0
    counted = threading.Lock()

    def fetch(url: str) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            with urllib.request.urlopen(url, timeout=timeout, context=context) as response:
                body = response.read()
            with counted:
                task.store(url, body)

    with ThreadPool(task.connections) as pool:
        for _ in pool.imap_unordered(fetch, task.urls):
            pass
    task.say()


if __name__ == "__main__":
    main()
