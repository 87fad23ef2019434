"""Threads of a pool of gevent's hand a turn on by what idle ones wait for, too: a condition, a queue."""

import contextlib
import queue
import sys
import threading
import time

import gevent
import requests
from gevent.threadpool import ThreadPool

HOST = "https://localhost:9/"  # nothing listens there
CONDITION, TOKENS, JOBS = threading.Condition(), queue.Queue(), []
BUSY = []


def request(number):
    with contextlib.suppress(requests.ConnectionError):
        requests.get(HOST + str(number))


def take():
    with CONDITION:
        while BUSY:
            CONDITION.wait()
        BUSY.append(None)


def give_back():
    with CONDITION:
        BUSY.pop()
        CONDITION.notify()


def condition(number):
    take()
    request(number)
    give_back()


def two_requests(number):
    take()
    request(number)
    request(number)
    give_back()


def work_after(number):
    take()
    request(number)
    time.sleep(0.3)
    give_back()


def token(number):
    mine = TOKENS.get()
    request(number)
    TOKENS.put(mine)


def polled(number):
    while BUSY:
        time.sleep(0.02)
    BUSY.append(number)
    request(number)
    BUSY.pop()


def work(number):
    while True:
        with CONDITION:
            CONDITION.wait_for(lambda: JOBS)
            job = JOBS.pop(0)
        if job is None:
            return
        request(job)


def give(every):
    for job in (*range(8), *[None] * 10):
        with CONDITION:
            JOBS.append(job)
            CONDITION.notify()
        gevent.sleep(every if job is not None else 0)


def crawl(number):
    while True:
        depth = TOKENS.get()
        if depth is None:
            return
        request(depth)
        for job in [depth + 1] if depth < 3 else [4] * 10 + [None] * 10 if depth == 3 else []:
            TOKENS.put(job)


def main():
    pool, kind = ThreadPool(10), sys.argv[1]
    if kind == "regular":
        gevent.spawn(give, float(sys.argv[2]))
        pool.map(work, range(10))
        return
    TOKENS.put(1)
    # Thirty calls: the thread that has had the turn has its next one at once.
    calls = 10 if kind == "crawl" else 30
    pool.map(globals()[kind.replace(" ", "_")], range(calls))


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "condition",
        "COMMAND": ["python", "threads_hand_on.py", "condition"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_hand_on.py:*"},
    },
    {
        "name": "two requests",
        "COMMAND": ["python", "threads_hand_on.py", "two requests"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_hand_on.py:*"},
    },
    {
        "name": "work after",
        "COMMAND": ["python", "threads_hand_on.py", "work after"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_hand_on.py:*"},
    },
    {
        "name": "token",
        "COMMAND": ["python", "threads_hand_on.py", "token"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_hand_on.py:*"},
    },
    {
        "name": "polled",
        "COMMAND": ["python", "threads_hand_on.py", "polled"],
        "EXPECT": {"verdict": "none", "error": "*threads of the pool waited at threads_hand_on.py:*"},
    },
    {
        "name": "crawl",
        "COMMAND": ["python", "threads_hand_on.py", "crawl"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "regular 0.2",
        "COMMAND": ["python", "threads_hand_on.py", "regular", "0.2"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "regular 0.45",
        "COMMAND": ["python", "threads_hand_on.py", "regular", "0.45"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
