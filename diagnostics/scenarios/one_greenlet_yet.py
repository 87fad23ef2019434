"""Only one greenlet, or a few, have a client when the first connects, and that lets one request through."""

import contextlib
import sys
import time

block = time.sleep

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9/"  # nothing listens there


class Signed(requests.auth.AuthBase):
    def __call__(self, request):
        block(0.1)
        return request


class Locked(requests.Session):
    def __init__(self, lock):
        super().__init__()
        self.lock = lock

    def request(self, *args, **kwargs):
        with self.lock:
            return super().request(*args, **kwargs)


class Vault:
    def __init__(self):
        self.lock = threading.Lock()
        self.session = Locked(self.lock)


VAULT = Vault()
HEARTBEAT = requests.Session()
HEARTBEAT.mount("https://", HTTPAdapter(pool_maxsize=1, pool_block=True))
LOGIN = requests.Session()
LOGIN.auth = Signed()
API = requests.Session()


def get(session, number=0):
    with contextlib.suppress(requests.ConnectionError):
        session.get(HOST + str(number))


def main():
    session = {"lock": VAULT.session, "auth": LOGIN}.get(sys.argv[1], HEARTBEAT)
    few = 2 if sys.argv[1] == "two" else 1
    gevent.joinall([gevent.spawn(get, session, number) for number in range(few)])
    gevent.joinall([gevent.spawn(get, API, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "heartbeat",
        "COMMAND": ["python", "one_greenlet_yet.py", "heartbeat"],
        "EXPECT": {
            "verdict": "none",
            "error": "*only one greenlet was seen with it (one_greenlet_yet.py:54)*",
        },
    },
    {
        "name": "two",
        "COMMAND": ["python", "one_greenlet_yet.py", "two"],
        "EXPECT": {
            "verdict": "none",
            "error": "*only 2 greenlets were seen with one (one_greenlet_yet.py:54)*",
        },
    },
    {
        "name": "lock",
        "COMMAND": ["python", "one_greenlet_yet.py", "lock"],
        "EXPECT": {"verdict": "none", "error": "*wait for each other in what the client does*"},
    },
    {
        "name": "auth",
        "COMMAND": ["python", "one_greenlet_yet.py", "auth"],
        "EXPECT": {"verdict": "none", "error": "*wait for each other in what the client does*"},
    },
]
