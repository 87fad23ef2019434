"""Run one session per connection, each lent to one request at a time: ``… requests|httpx|aiohttp``.

This is the measurement of the article "requests vs httpx vs aiohttp": the total includes creating the
sessions and all requests, but not the start of Python; mean, median and deviation are those of the single
requests.
"""

from __future__ import annotations

import asyncio
import queue
import ssl
import statistics
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.peers.task import Task


def with_requests(task: Task) -> list[float]:
    import requests

    free: queue.Queue[requests.Session] = queue.Queue()
    for _ in range(task.connections):
        session = requests.Session()
        session.trust_env = False
        session.verify = task.cafile or True
        free.put(session)

    def fetch(url: str) -> float:
        session = free.get()
        began = time.perf_counter()
        session.get(url, timeout=10).raise_for_status()
        taken = time.perf_counter() - began
        free.put(session)
        return taken

    with ThreadPoolExecutor(task.connections) as pool:
        return list(pool.map(fetch, task.urls))


async def _lent(task: Task, sessions: list[Any], get: Callable[[Any, str], Awaitable[None]]) -> list[float]:
    free: asyncio.Queue[Any] = asyncio.Queue()
    for session in sessions:
        free.put_nowait(session)

    async def fetch(url: str) -> float:
        session = await free.get()
        began = time.perf_counter()
        await get(session, url)
        taken = time.perf_counter() - began
        free.put_nowait(session)
        return taken

    return list(await asyncio.gather(*map(fetch, task.urls)))


async def with_httpx(task: Task) -> list[float]:
    import httpx

    context = ssl.create_default_context(cafile=task.cafile)

    async def get(client: httpx.AsyncClient, url: str) -> None:
        (await client.get(url)).raise_for_status()

    async with AsyncExitStack() as stack:
        clients = [httpx.AsyncClient(verify=context, timeout=10) for _ in range(task.connections)]
        return await _lent(task, [await stack.enter_async_context(client) for client in clients], get)


async def with_aiohttp(task: Task) -> list[float]:
    import aiohttp

    context = ssl.create_default_context(cafile=task.cafile)

    async def get(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(url, ssl=context) as response:
            response.raise_for_status()

    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(aiohttp.ClientSession()) for _ in range(task.connections)]
        return await _lent(task, made, get)


def main() -> None:
    task = Task.given()
    library = task.options[0]
    if library == "requests":
        import requests  # noqa: F401  (its import is not in the total, nor are the others')

        began = time.perf_counter()
        taken = with_requests(task)
    else:
        import uvloop

        __import__(library)
        uvloop.install()
        began = time.perf_counter()
        taken = asyncio.run({"httpx": with_httpx, "aiohttp": with_aiohttp}[library](task))
    total = time.perf_counter() - began
    task.files = len(taken)
    task.say(
        seconds=total,
        mean=statistics.fmean(taken),
        median=statistics.median(taken),
        deviation=statistics.pstdev(taken),
    )


if __name__ == "__main__":
    main()
