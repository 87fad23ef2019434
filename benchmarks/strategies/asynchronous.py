"""Run one task per file, at most 100 of them in flight and 1,000 waiting; aiohttp on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiohttp
import uvloop

from benchmarks.strategies.listing import Job

MOST_IN_FLIGHT, MOST_TASKS = 100, 1000


async def fetch(job: Job, session: aiohttp.ClientSession, allowed: asyncio.Semaphore, name: str) -> None:
    async with allowed, session.get(job.address(name)) as response:
        response.raise_for_status()
        job.store(name, await response.read())


async def fetch_all(job: Job, names: Iterable[str]) -> None:
    """Fetch ``names``; await the tasks in the order in which they were created."""
    allowed = asyncio.Semaphore(MOST_IN_FLIGHT)
    tasks: asyncio.Queue[asyncio.Task[None] | None] = asyncio.Queue(MOST_TASKS)

    async def settle() -> None:
        while (task := await tasks.get()) is not None:
            await task

    async with aiohttp.ClientSession() as session:
        settling = asyncio.create_task(settle())
        for name in names:
            await tasks.put(asyncio.create_task(fetch(job, session, allowed, name)))
        await tasks.put(None)
        await settling


def main() -> None:
    job = Job.given()
    uvloop.install()
    asyncio.run(fetch_all(job, job.names()))


if __name__ == "__main__":
    main()
