"""Run aiohttp: one session, and one task per connection, all sharing an iterator; uvloop where
requested.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Iterator

import aiohttp

from benchmarks.peers.task import Task


async def fetch_all(task: Task) -> None:
    context = ssl.create_default_context(cafile=task.cafile) if task.cafile else True
    connector = aiohttp.TCPConnector(limit=task.connections, ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        urls = iter(task.urls)
        await asyncio.gather(*(_fetch(session, urls, task) for _ in range(task.connections)))


async def _fetch(session: aiohttp.ClientSession, urls: Iterator[str], task: Task) -> None:
    for url in urls:
        async with session.get(url) as response:
            response.raise_for_status()
            task.store(url, await response.read())


def main() -> None:
    task = Task.given()
    if "uvloop" in sys.argv:
        import uvloop

        uvloop.install()
    asyncio.run(fetch_all(task))
    task.say()


if __name__ == "__main__":
    main()
