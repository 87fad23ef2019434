"""What most greenlets do is measured, and what they wait for is a turn only if it is one each time."""

import concurrent.futures
import contextlib
import functools
import logging
import queue
import sys
import time

from gevent import monkey

monkey.patch_all()

import threading

import gevent.pool
import requests
from gevent.event import AsyncResult, Event
from gevent.lock import BoundedSemaphore
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9/"  # nothing listens there
TOKEN = []


def narrow():
    session = requests.Session()
    session.mount("https://", HTTPAdapter(pool_maxsize=1, pool_block=True))
    return session


HEARTBEAT = narrow()


def request(number, session=requests):
    with contextlib.suppress(requests.ConnectionError):
        session.get(HOST + str(number))


def around(lock):
    def get(number):
        with lock:
            request(number)

    return get


def handler():
    class Handler(logging.Handler):
        def emit(self, record):
            request(0)

    log = logging.getLogger("scenario")
    log.addHandler(Handler())
    return lambda number: log.warning("working on %d", number)


def one_worker():
    pool = concurrent.futures.ThreadPoolExecutor(1)
    return lambda number: pool.submit(request, number).result()


def one_of_a_queue():
    clients = queue.Queue()
    clients.put(requests.Session())

    @contextlib.contextmanager
    def lent():
        client = clients.get()
        yield client
        clients.put(client)

    def get(number):
        with lent() as client:
            request(number, client)

    return get


def worker_that_replies():
    jobs = queue.Queue()

    def work():
        while True:
            number, answer = jobs.get()
            request(number)
            answer.put("done")

    def get(number):
        answer = queue.Queue()
        jobs.put((number, answer))
        answer.get()

    gevent.spawn(work)
    return get


def worker_that_sets_an_event():
    jobs = queue.Queue()

    def work():
        while True:
            number, done = jobs.get()
            request(number)
            done.set()

    def get(number):
        done = threading.Event()
        jobs.put((number, done))
        done.wait()

    gevent.spawn(work)
    return get


def ticket():
    tickets = queue.Queue()
    tickets.put("the only one")

    def get(number):
        mine = tickets.get()
        request(number)
        tickets.put(mine)

    return get


def polled():
    taken = []

    def get(number):
        while taken:
            gevent.sleep(0.02)
        taken.append(number)
        request(number)
        taken.pop()

    return get


def spaced():
    due = [0.0]

    def get(number):
        while time.time() < due[0]:
            gevent.sleep(0.02)
        due[0] = time.time() + 0.2
        request(number)

    return get


def event_of_another():
    ready = Event()

    def log_in():
        request("token", HEARTBEAT)
        ready.set()

    def get(number):
        ready.wait()
        request(number, narrow())

    gevent.spawn(log_in)
    return get


def pages_in_a_row():
    jobs, seen = queue.Queue(), []
    follows = {"robots": ["index"], "index": ["map"], "map": [str(number) for number in range(10)]}

    def get(number):
        while (job := jobs.get()) is not None:
            request(job)
            seen.append(job)
            for page in follows.get(job, [None] * 10 if len(seen) == 13 else []):
                jobs.put(page)
            gevent.sleep(0.01)  # another one takes what follows

    jobs.put("robots")
    return get


def workers_asleep():
    jobs, over = [], []

    def get(number):
        while not over:
            if jobs:
                request(jobs.pop(), requests.Session())
            gevent.sleep(0.02)

    def give():
        for job in (1, 2):
            jobs.append(job)
            gevent.sleep(0.5)
        over.append("now")

    gevent.spawn(give)
    return get


def log_in_once():
    lock = threading.Lock()

    def get(number):
        with lock:
            if not TOKEN:
                request("token", HEARTBEAT)
                TOKEN.append("of a login")
        request(number)

    return get


def token_of_another():
    token = AsyncResult()

    def refresh():
        request("token", HEARTBEAT)
        token.set("of a login")

    def get(number):
        token.get()
        request(number, narrow())

    gevent.spawn(refresh)
    return get


def idle_workers():
    jobs = queue.Queue()

    def get(number):
        while jobs.get() is not None:
            session = requests.Session()
            request(number, session)

    def give():
        for job in (1, 2, *[None] * 10):
            jobs.put(job)
            gevent.sleep(0.4 if job else 0)

    gevent.spawn(give)
    return get


def heartbeat():
    gevent.spawn(request, "heartbeat", HEARTBEAT)
    return with_a_client_of_its_own


def with_a_client_of_its_own(number):
    for page in range(2):
        request(page, narrow())


def harmless_first():
    gevent.spawn(requests_post)
    return lambda number: request(number, HEARTBEAT)


def requests_post():
    with contextlib.suppress(requests.ConnectionError):
        requests.post(HOST)


def in_a_pool(get):
    # The next greenlet starts when one ends, and polls before those that sleep.
    gevent.pool.Pool(10).map(get, range(30))


def main():
    if sys.argv[1] in ("polled first", "spaced"):
        in_a_pool(spaced() if sys.argv[1] == "spaced" else polled())
        return
    get = {
        "lock": functools.partial(around, threading.RLock()),
        "semaphore": functools.partial(around, BoundedSemaphore(2)),
        "handler": handler,
        "worker": one_worker,
        "queue": one_of_a_queue,
        "reply": worker_that_replies,
        "event": worker_that_sets_an_event,
        "ticket": ticket,
        "polled": polled,
        "ready": event_of_another,
        "pages": pages_in_a_row,
        "asleep": workers_asleep,
        "login": log_in_once,
        "token": token_of_another,
        "idle": idle_workers,
        "heartbeat": heartbeat,
        "harmless": harmless_first,
    }[sys.argv[1]]()
    gevent.joinall([gevent.spawn(get, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "lock",
        "COMMAND": ["python", "turns_around_requests.py", "lock"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "semaphore",
        "COMMAND": ["python", "turns_around_requests.py", "semaphore"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "handler",
        "COMMAND": ["python", "turns_around_requests.py", "handler"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "worker",
        "COMMAND": ["python", "turns_around_requests.py", "worker"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "queue",
        "COMMAND": ["python", "turns_around_requests.py", "queue"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "reply",
        "COMMAND": ["python", "turns_around_requests.py", "reply"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "event",
        "COMMAND": ["python", "turns_around_requests.py", "event"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "ticket",
        "COMMAND": ["python", "turns_around_requests.py", "ticket"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "polled",
        "COMMAND": ["python", "turns_around_requests.py", "polled"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "polled first",
        "COMMAND": ["python", "turns_around_requests.py", "polled first"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at turns_around_requests.py:*"},
    },
    {
        "name": "spaced",
        "COMMAND": ["python", "turns_around_requests.py", "spaced"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "ready",
        "COMMAND": ["python", "turns_around_requests.py", "ready"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "pages",
        "COMMAND": ["python", "turns_around_requests.py", "pages"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "asleep",
        "COMMAND": ["python", "turns_around_requests.py", "asleep"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "login",
        "COMMAND": ["python", "turns_around_requests.py", "login"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "token",
        "COMMAND": ["python", "turns_around_requests.py", "token"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "idle",
        "COMMAND": ["python", "turns_around_requests.py", "idle"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "heartbeat",
        "COMMAND": ["python", "turns_around_requests.py", "heartbeat"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "harmless",
        "COMMAND": ["python", "turns_around_requests.py", "harmless"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "turns_around_requests.py:29"},
    },
]
