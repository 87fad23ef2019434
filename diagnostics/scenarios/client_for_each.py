"""Each greenlet has a client of its own, which lets one request through at a time; or they share it."""

import contextlib
import ssl
import sys

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests
import urllib3
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9/"  # nothing listens there
LOCAL = threading.local()


def narrow():
    return HTTPAdapter(pool_maxsize=1, pool_block=True)


class Locked(requests.Session):
    def __init__(self):
        super().__init__()
        self.lock = threading.RLock()

    def request(self, *args, **kwargs):
        with self.lock:
            return super().request(*args, **kwargs)


class Worker:
    def __init__(self, session=None):
        self.session = session or requests.Session()
        self.session.mount("https://", narrow())

    def get(self, number):
        self.session.get(HOST)


class OfPyopenssl(HTTPAdapter):
    def __init__(self):
        from urllib3.contrib.pyopenssl import PyOpenSSLContext

        self.context = PyOpenSSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().__init__()

    def init_poolmanager(self, *args, **kwargs):
        return super().init_poolmanager(*args, ssl_context=self.context, **kwargs)


def get_of_thread(number):
    if not hasattr(LOCAL, "session"):
        LOCAL.session = Locked()
    LOCAL.session.get(HOST)


def get_of_pool(number):
    with urllib3.HTTPSConnectionPool("localhost", 9, maxsize=1, block=True) as pool:
        pool.request("GET", "/", retries=False)


def get_of_manager(number):
    worker = Worker()
    worker.pools = urllib3.PoolManager(maxsize=1, block=True)
    worker.pools.request("GET", HOST, retries=False)


def get_of_context(number):
    with requests.Session() as session:
        session.mount("https://", OfPyopenssl())
        session.get(HOST)


def workers(*given):
    each = [Worker(*given) for _ in range(10)]
    return lambda number: each[number].get(number)


def prefixes():
    session = requests.Session()
    for number in range(10):
        session.mount(HOST + str(number), narrow())
    return lambda number: session.get(HOST + str(number))


def adapter():
    shared = narrow()

    def get(number):
        with requests.Session() as session:
            session.mount("https://", shared)
            session.get(HOST)

    return get


def main():
    get = {
        "thread": lambda: get_of_thread,
        "pool": lambda: get_of_pool,
        "manager": lambda: get_of_manager,
        "context": lambda: get_of_context,
        "workers": workers,
        "prefixes": prefixes,
        "one session": lambda: workers(requests.Session()),
        "one adapter": adapter,
        "one lock": one_lock,
    }[sys.argv[1]]()

    def fetch(number):
        with contextlib.suppress(requests.ConnectionError, urllib3.exceptions.HTTPError):
            get(number)

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


def one_lock():
    session = Locked()
    return lambda number: session.get(HOST)


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests", "pyOpenSSL"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "thread",
        "COMMAND": ["python", "client_for_each.py", "thread"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "pool",
        "COMMAND": ["python", "client_for_each.py", "pool"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "manager",
        "COMMAND": ["python", "client_for_each.py", "manager"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "context",
        "COMMAND": ["python", "client_for_each.py", "context"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "workers",
        "COMMAND": ["python", "client_for_each.py", "workers"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "prefixes",
        "COMMAND": ["python", "client_for_each.py", "prefixes"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "one session",
        "COMMAND": ["python", "client_for_each.py", "one session"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "client_for_each.py:*"},
    },
    {
        "name": "one adapter",
        "COMMAND": ["python", "client_for_each.py", "one adapter"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "client_for_each.py:*"},
    },
    {
        "name": "one lock",
        "COMMAND": ["python", "client_for_each.py", "one lock"],
        "EXPECT": {"verdict": "serialized", "cause": "own-lock", "where": "client_for_each.py:*"},
    },
]
