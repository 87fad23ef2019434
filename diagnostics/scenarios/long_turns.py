"""Who has the turn makes several requests, or does something else with it as well."""

import contextlib
import sys
import time

from gevent import monkey

monkey.patch_all()

import gevent
import requests
from gevent.queue import Queue

HOST = "https://localhost:9/"  # nothing listens there
BUSY, TOKEN, JOBS = [], Queue(), Queue()


def request(number):
    with contextlib.suppress(requests.ConnectionError):
        requests.get(HOST + str(number))


def take():
    while BUSY:
        time.sleep(0.02)
    BUSY.append(None)


def three(number):
    take()
    for page in range(3):
        request(page)
    BUSY.pop()


def work_after(number):
    given = TOKEN.get()
    request(number)
    time.sleep(0.3)
    TOKEN.put(given)


def token(number):
    given = TOKEN.get()
    request(number)
    request(number + 1)
    TOKEN.put(given)


def two_places(number):
    if number % 2:
        while BUSY:
            time.sleep(0.02)
    while BUSY:
        time.sleep(0.02)
    BUSY.append(None)
    request(number)
    BUSY.pop()


def jobs(number):
    for pages in iter(JOBS.get, None):
        for page in range(pages):
            request(page)


def main():
    TOKEN.put("token")
    job = globals()[sys.argv[1]]

    def repeated(number):
        for _ in range(1 if job is jobs else 2):
            job(number)

    started = [gevent.spawn(repeated, number) for number in range(10)]
    if job is jobs:
        # Few requests at a time, since there are few jobs; then there are many.
        for pages in (3, 1, 2, 3, 1, 2):
            JOBS.put(pages)
            gevent.sleep(0.4)
        for _ in range(10):
            JOBS.put(2)
        for _ in range(10):
            JOBS.put(None)
    gevent.joinall(started)


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "three",
        "COMMAND": ["python", "long_turns.py", "three"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at long_turns.py:*"},
    },
    {
        "name": "work after",
        "COMMAND": ["python", "long_turns.py", "work_after"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at long_turns.py:*"},
    },
    {
        "name": "token",
        "COMMAND": ["python", "long_turns.py", "token"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at long_turns.py:*"},
    },
    {
        "name": "two places",
        "COMMAND": ["python", "long_turns.py", "two_places"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at long_turns.py:*"},
    },
    {"name": "jobs", "COMMAND": ["python", "long_turns.py", "jobs"], "EXPECT": {"verdict": "concurrent"}},
]
