"""Run httpx: one AsyncClient speaking HTTP/1.1, and one task per connection, all sharing an iterator."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

import httpx

from benchmarks.peers.task import Task


async def fetch_all(task: Task) -> None:
    limits = httpx.Limits(max_connections=task.connections, max_keepalive_connections=task.connections)
    context = ssl.create_default_context(cafile=task.cafile)
    async with httpx.AsyncClient(limits=limits, verify=context, trust_env=False, timeout=60) as client:
        urls = iter(task.urls)
        await asyncio.gather(*(_fetch(client, urls, task) for _ in range(task.connections)))


async def _fetch(client: httpx.AsyncClient, urls: Iterator[str], task: Task) -> None:
    for url in urls:
        response = await client.get(url)
        response.raise_for_status()
        task.store(url, response.content)


def main() -> None:
    task = Task.given()
    asyncio.run(fetch_all(task))
    task.say()


if __name__ == "__main__":
    main()
