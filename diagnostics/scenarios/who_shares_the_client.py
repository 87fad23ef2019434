"""What refers to a client does not say which greenlets share it: it has to be seen which of them use it."""

import contextlib
import gc
import socket
import sys
import weakref

from gevent import monkey

monkey.patch_all()

import queue
import threading

import gevent
import requests
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9/"  # nothing listens there
WEAK = weakref.WeakValueDictionary()
SESSIONS = {}
QUEUE = queue.Queue()


def narrow():
    session = requests.Session()
    session.mount("https://", HTTPAdapter(pool_maxsize=1, pool_block=True))
    return session


FROZEN = narrow()


class Gate:
    def __init__(self):
        self.lock = threading.Lock()


class Gated(requests.Session):
    def __init__(self):
        super().__init__()
        self.gate = Gate()

    def request(self, *args, **kwargs):
        with self.gate.lock:
            return super().request(*args, **kwargs)


def get_of_weak(number):
    session = WEAK.get("session")
    if session is None:
        session = WEAK["session"] = narrow()
    session.get(HOST)


def get_with_the_adapters(number):
    session = requests.Session()
    session.adapters = FROZEN.adapters
    session.get(HOST)


def get_of_registry(number):
    if number not in SESSIONS:
        SESSIONS[number] = narrow()
    SESSIONS[number].get(HOST)


def get_of_queue(number):
    session = QUEUE.get()
    try:
        session.get(HOST)
    finally:
        QUEUE.put(session)


def log_in_and_fetch(number):
    session = narrow()
    with contextlib.suppress(requests.ConnectionError):
        session.get(HOST + "login")
    gevent.joinall([gevent.spawn(session.get, HOST + str(page)) for page in range(10)])


def with_transport():
    import httpx

    listener = socket.create_server(("localhost", 0))
    transport = httpx.HTTPTransport(limits=httpx.Limits(max_connections=1))
    url = "https://localhost:%d" % listener.getsockname()[1]
    return lambda number: httpx.Client(transport=transport).get(url)


def main():
    if sys.argv[1] == "leftover":
        started = []
        for _ in range(10):
            session = narrow()
            started.append(gevent.spawn(session.get, HOST))
        gevent.joinall(started)
        return
    if sys.argv[1] == "frozen":
        gc.freeze()
    QUEUE.put(requests.Session())
    get = {
        "weak": lambda: get_of_weak,
        "adapters": lambda: get_with_the_adapters,
        "frozen": lambda: lambda number: FROZEN.get(HOST),
        "transport": with_transport,
        "registry": lambda: get_of_registry,
        "gate": lambda: lambda number: Gated().get(HOST),
        "queue": lambda: get_of_queue,
        "login": lambda: log_in_and_fetch,
    }[sys.argv[1]]()

    def fetch(number):
        with contextlib.suppress(requests.ConnectionError):
            get(number)

    many = 1 if sys.argv[1] == "login" else 10
    gevent.joinall([gevent.spawn(fetch, number) for number in range(many)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests", "httpx"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "weak",
        "COMMAND": ["python", "who_shares_the_client.py", "weak"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "who_shares_the_client.py:*"},
    },
    {
        "name": "adapters",
        "COMMAND": ["python", "who_shares_the_client.py", "adapters"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "who_shares_the_client.py:*"},
    },
    {
        "name": "frozen",
        "COMMAND": ["python", "who_shares_the_client.py", "frozen"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "who_shares_the_client.py:*"},
    },
    {
        "name": "transport",
        "COMMAND": ["python", "who_shares_the_client.py", "transport"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "who_shares_the_client.py:*"},
    },
    {
        "name": "registry",
        "COMMAND": ["python", "who_shares_the_client.py", "registry"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "leftover",
        "COMMAND": ["python", "who_shares_the_client.py", "leftover"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "login",
        "COMMAND": ["python", "who_shares_the_client.py", "login"],
        "EXPECT": {
            "verdict": "none",
            "error": "*one client for all greenlets HTTPS is serialized*one for each it is concurrent*",
        },
    },
    {
        "name": "gate",
        "COMMAND": ["python", "who_shares_the_client.py", "gate"],
        "EXPECT": {"verdict": "none", "error": "*they share what the clients do not*"},
    },
    {
        "name": "queue",
        "COMMAND": ["python", "who_shares_the_client.py", "queue"],
        "EXPECT": {"verdict": "none", "error": "*8 greenlets waited at who_shares_the_client.py:*"},
    },
]
