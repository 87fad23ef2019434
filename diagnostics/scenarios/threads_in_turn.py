"""Threads of a pool of gevent's wait for a real lock around their requests, or for something else."""

import contextlib
import queue
import sys
import threading

import gevent
import requests
from gevent.pool import Pool
from gevent.threadpool import ThreadPool

HOST = "https://localhost:9/"  # nothing listens there
LOCK, PLAIN = threading.RLock(), threading.Lock()
ROOM = threading.Semaphore(1)
TOKEN, LOCKS = [], [threading.Lock()]


def request(number):
    with contextlib.suppress(requests.ConnectionError):
        requests.get(HOST + str(number))


def locked(number):
    with LOCK:
        request(number)


def acquired(number):
    PLAIN.acquire()
    try:
        request(number)
    finally:
        PLAIN.release()


def with_room(number):
    with ROOM:
        request(number)


def log_in_once(number):
    with LOCK:
        if not TOKEN:
            request("token")
            request("account")
            TOKEN.append("of a login")
    request(number)


def lock_of(number):
    return LOCKS[number % 1]


def looked_up(number):
    with lock_of(number):
        request(number)


def work(jobs):
    while True:
        job = jobs.get()
        if job is None:
            return
        request(job)


def main():
    pool, kind = ThreadPool(10), sys.argv[1]
    if kind == "applied":
        # What the pool of the hub runs, greenlets wait for.
        Pool(10).map(lambda number: gevent.get_hub().threadpool.apply(locked, (number,)), range(10))
    elif kind == "idle":
        jobs = queue.Queue()
        workers = [pool.spawn(work, jobs) for _ in range(10)]
        for job in (1, 2, 3, *[None] * 10):
            jobs.put(job)
            gevent.sleep(0.4 if job else 0)
        gevent.wait(workers)
    else:
        kinds = {
            "locked": locked,
            "acquired": acquired,
            "semaphore": with_room,
            "looked up": looked_up,
            "login": log_in_once,
        }
        pool.map(kinds[kind], range(10))


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "locked",
        "COMMAND": ["python", "threads_in_turn.py", "locked"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_in_turn.py:25 *"},
    },
    {
        "name": "acquired",
        "COMMAND": ["python", "threads_in_turn.py", "acquired"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_in_turn.py:30 *"},
    },
    {
        "name": "semaphore",
        "COMMAND": ["python", "threads_in_turn.py", "semaphore"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_in_turn.py:38 *"},
    },
    {
        "name": "looked up",
        "COMMAND": ["python", "threads_in_turn.py", "looked up"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_in_turn.py:56 *"},
    },
    {
        "name": "applied",
        "COMMAND": ["python", "threads_in_turn.py", "applied"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_in_turn.py:25 *"},
    },
    {
        "name": "login",
        "COMMAND": ["python", "threads_in_turn.py", "login"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "idle",
        "COMMAND": ["python", "threads_in_turn.py", "idle"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
