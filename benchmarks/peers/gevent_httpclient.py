"""Run geventhttpclient: its connection pool and C parser, under a gevent pool; it needs no patching."""

from __future__ import annotations

import ssl

from gevent.pool import Pool
from geventhttpclient import HTTPClient

from benchmarks.peers.task import Task


def main() -> None:
    task = Task.given()
    pool = Pool(task.connections)
    secure = {"ssl_context_factory": lambda: ssl.create_default_context(cafile=task.cafile)}
    client = HTTPClient.from_url(
        task.urls[0], concurrency=task.connections, network_timeout=60, **(secure if task.cafile else {})
    )

    def fetch(url: str) -> None:
        response = client.get("/" + url.split("/", 3)[3])
        body = bytes(response.read())
        if response.status_code != 200:
            raise RuntimeError(f"{url}: {response.status_code}")
        task.store(url, body)

    for _ in pool.imap_unordered(fetch, task.urls, maxsize=task.connections):
        pass
    client.close()
    task.say()


if __name__ == "__main__":
    main()
