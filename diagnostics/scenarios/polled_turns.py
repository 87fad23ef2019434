"""Greenlets poll for their turn in a function that each calls several times, or poll for something else.

Who has had the turn takes it again at once, while all others are asleep.
"""

import contextlib
import os
import sys
import tempfile
import time

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests

HOST = "https://localhost:9/"  # nothing listens there
BUSY, JOBS, SENT = [], [], []
LOCK, STOP = threading.Lock(), threading.Event()
FILE = os.path.join(tempfile.gettempdir(), "polled-%d" % os.getpid())


def request(number):
    with contextlib.suppress(requests.ConnectionError):
        requests.get(HOST + str(number))


def flag(number):
    while BUSY:
        time.sleep(0.01)
    BUSY.append(number)
    request(number)
    BUSY.pop()


def event(number):
    while BUSY:
        STOP.wait(0.05)
    BUSY.append(number)
    request(number)
    BUSY.pop()


def lock(number):
    while not LOCK.acquire(blocking=False):
        time.sleep(0.02)
    try:
        request(number)
    finally:
        LOCK.release()


class LockFile:
    def __enter__(self):
        while True:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(FILE, os.O_CREAT | os.O_EXCL))
                return
            time.sleep(0.05)

    def __exit__(self, *error):
        os.unlink(FILE)


def lock_file(number):
    with LockFile():
        request(number)


def three_times(get):
    def job(number):
        for _ in range(3):
            get(number)

    return job


def in_one_function(number):
    for _ in range(3):
        while BUSY:
            time.sleep(0.02)
        BUSY.append(number)
        request(number)
        BUSY.pop()


def ten_a_second():
    while True:
        now = time.monotonic()
        SENT[:] = [each for each in SENT if each > now - 1]
        if len(SENT) < 10:
            SENT.append(now)
            return
        time.sleep(0.02)


def rate(number):
    ten_a_second()
    request(number)


def work(number):
    until = time.monotonic() + 4
    while time.monotonic() < until:
        if JOBS:
            for page in range(JOBS.pop()):
                request(page)
        time.sleep(0.02)


def one_large_job(number):
    # The others have no work, and it is no turn of theirs that they wait for.
    if not number:
        JOBS.append(12)
    work(number)


def crawl(number):
    until, depth = time.monotonic() + 4, 0 if not number else None
    while time.monotonic() < until:
        if depth is not None:
            request(depth)
            JOBS.extend([depth + 1] if depth < 2 else [3] * 9 if depth == 2 else [])
        while not JOBS and time.monotonic() < until:
            time.sleep(0.02)
        depth = JOBS.pop() if JOBS else None


def main():
    kind = sys.argv[1]
    get = {
        "in one function": in_one_function,
        "large job": one_large_job,
        "regular": work,
        "crawl": crawl,
    }.get(kind) or three_times({"lock file": lock_file}.get(kind) or globals()[kind])
    started = [gevent.spawn(get, number) for number in range(10)]
    if kind == "regular":
        for _ in range(20):
            JOBS.append(1)
            gevent.sleep(0.2)
    gevent.joinall(started)


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "flag",
        "COMMAND": ["python", "polled_turns.py", "flag"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at polled_turns.py:*"},
    },
    {
        "name": "event",
        "COMMAND": ["python", "polled_turns.py", "event"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at polled_turns.py:*"},
    },
    {
        "name": "lock",
        "COMMAND": ["python", "polled_turns.py", "lock"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at polled_turns.py:*"},
    },
    {
        "name": "lock file",
        "COMMAND": ["python", "polled_turns.py", "lock file"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at polled_turns.py:*"},
    },
    {
        "name": "in one function",
        "COMMAND": ["python", "polled_turns.py", "in one function"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at polled_turns.py:*"},
    },
    {
        "name": "rate",
        "COMMAND": ["python", "polled_turns.py", "rate"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "large job",
        "COMMAND": ["python", "polled_turns.py", "large job"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "regular",
        "COMMAND": ["python", "polled_turns.py", "regular"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "crawl",
        "COMMAND": ["python", "polled_turns.py", "crawl"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
