"""Run aiohttp at a constant rate (an open loop): request ``i`` is due at ``i / RATE`` whatever came before.

Latency is taken twice: from when a request was due, and from when it was sent. The former includes the time
that a request waits because others are slow; the latter leaves it out ("coordinated omission").
"""

from __future__ import annotations

import asyncio
import ssl
import time

import aiohttp
import uvloop

from benchmarks.peers.task import Task


async def fetch_all(task: Task, rate: float) -> dict[str, float]:
    context = ssl.create_default_context(cafile=task.cafile) if task.cafile else True
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    free = asyncio.Semaphore(task.connections)
    due_ms: list[float] = []
    sent_ms: list[float] = []
    running: set[asyncio.Task[None]] = set()

    async def fetch(url: str, due: float) -> None:
        async with free:
            sent = time.perf_counter()
            async with session.get(url) as response:
                response.raise_for_status()
                task.store(url, await response.read())
            end = time.perf_counter()
        due_ms.append((end - due) * 1000)
        sent_ms.append((end - sent) * 1000)

    async with aiohttp.ClientSession(connector=connector) as session:
        began = time.perf_counter()
        for index, url in enumerate(task.urls):
            due = began + index / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            one = asyncio.create_task(fetch(url, due))
            running.add(one)
            one.add_done_callback(running.discard)
        while running:
            await asyncio.wait(running)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, **percentiles("due", due_ms), **percentiles("sent", sent_ms)}


def percentiles(name: str, values: list[float]) -> dict[str, float]:
    """Return p50 … p999 of ``values``, as ``name_p50`` and so on."""
    ordered = sorted(values)
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    found = {k: ordered[min(len(ordered) - 1, int(p * len(ordered)))] for k, p in ranks.items()}
    return {f"{name}_{k}": value for k, value in {**found, "max": ordered[-1]}.items()}


def main() -> None:
    task = Task.given()
    uvloop.install()
    task.say(**asyncio.run(fetch_all(task, float(task.options[-1]))))


if __name__ == "__main__":
    main()
