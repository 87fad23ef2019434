"""List into a bounded queue in one thread; N threads take from it and fetch with ``requests.get``."""

from __future__ import annotations

import queue
import threading

from benchmarks.strategies.listing import Job
from benchmarks.strategies.sequential import fetch


def main() -> None:
    job = Job.given()
    threads = int(job.options[0])
    work: queue.Queue[str | None] = queue.Queue(1000)

    def take() -> None:
        while (name := work.get()) is not None:
            fetch(job, name)

    running = [threading.Thread(target=take) for _ in range(threads)]
    for thread in running:
        thread.start()
    for name in job.names():
        work.put(name)
    for _ in running:
        work.put(None)
    for thread in running:
        thread.join()


if __name__ == "__main__":
    main()
