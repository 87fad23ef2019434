"""Run urllib.request in threads, as img2dataset does: a connection for each file, 10 s for each wait."""

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
    counted = threading.Lock()

    def fetch(url: str) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            with urllib.request.urlopen(url, timeout=10, context=context) as response:
                body = response.read()
            with counted:
                task.store(url, body)

    with ThreadPool(task.connections) as pool:
        for _ in pool.imap_unordered(fetch, task.urls):
            pass
    task.say()


if __name__ == "__main__":
    main()
