"""Run aiohttp with uvloop and aiodns over many hosts: what fails is left out, as long as others go on."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator

import aiohttp
import uvloop
from aiohttp.resolver import AsyncResolver

from benchmarks.peers.task import Task

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=10)


async def fetch_all(task: Task) -> None:
    context = ssl.create_default_context(cafile=task.cafile) if task.cafile else True
    connector = aiohttp.TCPConnector(limit=task.connections, ssl=context, resolver=AsyncResolver())
    async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
        urls = iter(task.urls)
        await asyncio.gather(*(_fetch(session, urls, task) for _ in range(task.connections)))


async def _fetch(session: aiohttp.ClientSession, urls: Iterator[str], task: Task) -> None:
    for url in urls:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, asyncio.TimeoutError):
            async with session.get(url) as response:
                response.raise_for_status()
                task.store(url, await response.read())


def main() -> None:
    task = Task.given()
    uvloop.install()
    asyncio.run(fetch_all(task))
    task.say()


if __name__ == "__main__":
    main()
