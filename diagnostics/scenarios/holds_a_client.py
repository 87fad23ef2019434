"""A greenlet has a client as an argument, or is in a method of one, and waits or sleeps before it fetches."""

import contextlib
import functools
import sys

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9/"  # nothing listens there
LOCK = threading.RLock()


def narrow():
    session = requests.Session()
    session.mount("https://", HTTPAdapter(pool_maxsize=1, pool_block=True))
    return session


def get(session, number):
    with LOCK, contextlib.suppress(requests.ConnectionError):
        session.get(HOST + str(number))


def free(session, number):
    with contextlib.suppress(requests.ConnectionError):
        session.get(HOST + str(number))


def synchronized(method):
    @functools.wraps(method)
    def call(own, *args, **kwargs):
        with own.lock:
            return method(own, *args, **kwargs)

    return call


class Api(requests.Session):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def item(self, number):
        with self.lock:
            free(self, number)

    def post(self, *args, **kwargs):
        with self.lock:
            return super().post(*args, **kwargs)

    def send_item(self, number):
        with contextlib.suppress(requests.ConnectionError):
            self.post(HOST + str(number))

    def free_item(self, number):
        free(self, number)


class Locked(requests.Session):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    @synchronized
    def request(self, *args, **kwargs):
        return super().request(*args, **kwargs)


def sleeping(session, number):
    while True:
        gevent.sleep(20)
        free(session, number)


def with_sleepers():
    asleep = narrow()
    for number in range(12):
        gevent.spawn(sleeping, asleep, number)
    return functools.partial(free, requests.Session())


def through_requests():
    api = Locked()

    def request(number):
        with contextlib.suppress(requests.ConnectionError):
            api.request("GET", HOST + str(number))

    return request


def main():
    call = {
        "argument": lambda: functools.partial(get, requests.Session()),
        "each": lambda: lambda number: get(requests.Session(), number),
        "method": lambda: Api().item,
        "post": lambda: Api().send_item,
        "override": through_requests,
        "free argument": lambda: functools.partial(free, requests.Session()),
        "free method": lambda: Api().free_item,
        "asleep": with_sleepers,
    }[sys.argv[1]]()
    gevent.joinall([gevent.spawn(call, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "argument",
        "COMMAND": ["python", "holds_a_client.py", "argument"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at holds_a_client.py:28 *"},
    },
    {
        "name": "each",
        "COMMAND": ["python", "holds_a_client.py", "each"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at holds_a_client.py:28 *"},
    },
    {
        "name": "method",
        "COMMAND": ["python", "holds_a_client.py", "method"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at holds_a_client.py:52 *"},
    },
    {
        "name": "post",
        "COMMAND": ["python", "holds_a_client.py", "post"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at holds_a_client.py:56 *"},
    },
    {
        "name": "override",
        "COMMAND": ["python", "holds_a_client.py", "override"],
        "EXPECT": {"verdict": "serialized", "cause": "own-lock", "where": "holds_a_client.py:40"},
    },
    {
        "name": "free argument",
        "COMMAND": ["python", "holds_a_client.py", "free argument"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "free method",
        "COMMAND": ["python", "holds_a_client.py", "free method"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "asleep",
        "COMMAND": ["python", "holds_a_client.py", "asleep"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
