"""Combine all three: the first process lists, one process per core fetches whole pages with asyncio, and in
each a thread takes the next page from the queue while the event loop works on this one."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import queue
import threading
from collections.abc import Iterator
from itertools import islice
from multiprocessing.queues import Queue

import aiohttp
import uvloop

from benchmarks.strategies.asynchronous import MOST_IN_FLIGHT, fetch
from benchmarks.strategies.listing import Job

Page = list[str]


def work(job: Job, pages: Queue[Page | None]) -> None:
    """Run one process: a thread reads pages ahead, the event loop fetches them."""
    ahead: queue.Queue[Page | None] = queue.Queue(2)

    def read() -> None:
        while (page := pages.get()) is not None:
            ahead.put(page)
        ahead.put(None)

    threading.Thread(target=read, daemon=True).start()
    uvloop.install()
    asyncio.run(_fetch_pages(job, ahead))


async def _fetch_pages(job: Job, ahead: queue.Queue[Page | None]) -> None:
    allowed = asyncio.Semaphore(MOST_IN_FLIGHT)
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session:
        while (page := await loop.run_in_executor(None, ahead.get)) is not None:
            await asyncio.gather(*(fetch(job, session, allowed, name) for name in page))


def _paged(names: Iterator[str]) -> Iterator[Page]:
    while page := list(islice(names, 1000)):
        yield page


def main() -> None:
    job = Job.given()
    count = len(os.sched_getaffinity(0))
    pages: Queue[Page | None] = multiprocessing.Queue(2 * count)
    workers = [multiprocessing.Process(target=work, args=(job, pages)) for _ in range(count)]
    for worker in workers:
        worker.start()
    for page in _paged(job.names()):
        pages.put(page)
    for _ in workers:
        pages.put(None)
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
