"""Who has the turn starts a greenlet or a thread for the request, and waits for it."""

import concurrent.futures
import contextlib
import sys
import time

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests
from gevent.pool import Pool

HOST = "https://localhost:9/"  # nothing listens there
LOCK, BUSY, BEFORE = threading.Lock(), [], []
ONE, WORKER = Pool(1), concurrent.futures.ThreadPoolExecutor(1)


def request(number):
    with contextlib.suppress(requests.ConnectionError):
        requests.get(HOST + str(number))


def lock(number):
    with LOCK:
        gevent.spawn(request, number).get()


def thread(number):
    with LOCK:
        started = threading.Thread(target=request, args=(number,))
        started.start()
        started.join()


def flag(number):
    while BUSY:
        time.sleep(0.01)
    BUSY.append(number)
    gevent.joinall([gevent.spawn(request, number)])
    BUSY.pop()


def pool(number):
    ONE.apply(request, (number,))


def executor(number):
    WORKER.submit(request, number).result()


def work_after(number):
    # It has the result while it goes on.
    WORKER.submit(lambda: (request(number), time.sleep(0.3))).result()


def steps(number):
    # Two lead to one another; then all are due at once.
    BEFORE.append(gevent.getcurrent())
    if number:
        BEFORE[min(number - 1, 2)].join()
    request(number)


def no_lock(number):
    with LOCK:
        started = gevent.spawn(request, number)
    started.get()


def login(number):
    with LOCK:
        if not BUSY:
            gevent.spawn(request, number).get()
            BUSY.append(number)
    request(number)


def services(number):
    # Each ends before the only request of its greenlet; they do not wait for one another.
    gevent.spawn(time.sleep, 0.3 + number / 4.0).join()
    request(number)


def main():
    kind = sys.argv[1]
    job = globals()[kind]
    times = 1 if kind in ("steps", "login", "services") else 3

    def repeated(number):
        for _ in range(times):
            job(number)

    gevent.joinall([gevent.spawn(repeated, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "lock",
        "COMMAND": ["python", "turns_of_starters.py", "lock"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_of_starters.py:*"},
    },
    {
        "name": "thread",
        "COMMAND": ["python", "turns_of_starters.py", "thread"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_of_starters.py:*"},
    },
    {
        "name": "flag",
        "COMMAND": ["python", "turns_of_starters.py", "flag"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_of_starters.py:*"},
    },
    {
        "name": "pool",
        "COMMAND": ["python", "turns_of_starters.py", "pool"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_of_starters.py:*"},
    },
    {
        "name": "executor",
        "COMMAND": ["python", "turns_of_starters.py", "executor"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_of_starters.py:*"},
    },
    {
        "name": "work after",
        "COMMAND": ["python", "turns_of_starters.py", "work_after"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_of_starters.py:*"},
    },
    {
        "name": "steps",
        "COMMAND": ["python", "turns_of_starters.py", "steps"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "no lock",
        "COMMAND": ["python", "turns_of_starters.py", "no_lock"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "login",
        "COMMAND": ["python", "turns_of_starters.py", "login"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "services",
        "COMMAND": ["python", "turns_of_starters.py", "services"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
