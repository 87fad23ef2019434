"""Many greenlets wait while one makes a request, but for a job, or for a login: no turns of all requests."""

import collections
import contextlib
import sys

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests
from gevent.lock import Semaphore

HOST = "https://localhost:9/"  # nothing listens there
JOBS, ANY, COUNTED = collections.deque(), threading.Condition(), Semaphore(0)
LOGIN, TURN, BUSY = threading.Lock(), threading.Condition(), []


def request(session, path):
    with contextlib.suppress(requests.ConnectionError):
        session.get(HOST + path)


def condition():
    with ANY:
        while not JOBS:
            ANY.wait(1.0)
        return JOBS.popleft()


def semaphore():
    COUNTED.acquire()
    return JOBS.popleft()


def put(job):
    with ANY:
        JOBS.append(job)
        ANY.notify()
    COUNTED.release()


def work(number):
    session = requests.Session()
    take = globals()[sys.argv[1]]
    for path in iter(take, None):
        request(session, path)


def login(number):
    # Each has a session of its own.
    session = requests.Session()
    with LOGIN:
        request(session, "login")
    for page in range(5):
        request(session, "%d-%d" % (number, page))


def turn(number, patience=None):
    with TURN:
        while BUSY:
            TURN.wait(patience)
        BUSY.append(number)
    request(requests, str(number))
    with TURN:
        BUSY.pop()
        TURN.notify()


def patient(number):
    turn(number, 30.0)


def main():
    job = {"login": login, "turn": turn, "patient": patient}.get(sys.argv[1], work)
    started = [gevent.spawn(job, number) for number in range(10)]
    if job is work:
        # Few requests at a time, since there are few jobs; then there are many.
        for number in range(6):
            put(str(number))
            gevent.sleep(0.3)
        for number in range(20):
            put(str(number))
        for _ in range(10):
            put(None)
    gevent.joinall(started)


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "condition",
        "COMMAND": ["python", "turns_of_other_things.py", "condition"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "semaphore",
        "COMMAND": ["python", "turns_of_other_things.py", "semaphore"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "login",
        "COMMAND": ["python", "turns_of_other_things.py", "login"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "turn",
        "COMMAND": ["python", "turns_of_other_things.py", "turn"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_of_other_things.py:*"},
    },
    {
        "name": "patient",
        "COMMAND": ["python", "turns_of_other_things.py", "patient"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_of_other_things.py:*"},
    },
]
