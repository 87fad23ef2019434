"""What is asked before a connection is opened is asked in turn, and requests on open connections overlap."""

import contextlib
import sys
import time

from gevent import monkey

monkey.patch_all()

import socket
import threading

import gevent
import gevent.lock
import requests
import urllib3.util.connection

HOST = "https://localhost:9/"  # nothing listens there
MODE = sys.argv[1] if __name__ == "__main__" else "lock"
SESSION = requests.Session()
SECONDS = {"login": 1.2, "four": 0.6}.get(MODE, 0.2)

_lock = gevent.lock.BoundedSemaphore(4) if MODE == "four" else threading.Lock()
_logins = []
_uses = [0]  # that the token still has
_client, _registry = socket.socketpair()


def answer():
    while _registry.recv(1):
        time.sleep(SECONDS)
        _registry.sendall(b"!")


def ask():
    with _lock:  # <- where
        if MODE == "four":
            time.sleep(SECONDS)
        elif MODE != "login" or not _uses[0]:
            _client.sendall(b"?")
            _client.recv(1)
            _uses[0] = 20 if _logins else 1  # the second is for all: the first request is made alone
            _logins.append(MODE)
        _uses[0] -= 1


def getaddrinfo(*args, **kwargs):
    ask()
    return _getaddrinfo(*args, **kwargs)


def create_connection(*args, **kwargs):
    ask()
    return _create_connection(*args, **kwargs)


if MODE == "name":
    _getaddrinfo, socket.getaddrinfo = socket.getaddrinfo, getaddrinfo
elif MODE != "one":
    _create_connection = urllib3.util.connection.create_connection
    urllib3.util.connection.create_connection = create_connection
gevent.spawn(answer)


class Slow(requests.Session):
    """Asks in turn before its first requests, each session for itself."""

    def __init__(self):
        super().__init__()
        self.lock = threading.RLock()
        self.made = 0

    def request(self, *args, **kwargs):
        if self.made < 12:
            with self.lock:
                self.made += 1
                time.sleep(SECONDS)
        return super().request(*args, **kwargs)


def fetch(url):
    SESSION.get(url).raise_for_status()


def main():
    def get(number):
        with contextlib.suppress(requests.ConnectionError):
            session.get(HOST + str(number))

    session = Slow() if MODE == "one" else SESSION
    gevent.joinall([gevent.spawn(get, number) for number in range(1 if MODE == "one" else 10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {"name": "fetch", "EXPECT": {"verdict": "serialized", "cause": "own-lock"}},
    {
        "name": "lock",
        "COMMAND": ["python", "connections_in_turn.py", "lock"],
        "EXPECT": {"verdict": "serialized", "cause": "own-lock"},
    },
    {
        "name": "name",
        "COMMAND": ["python", "connections_in_turn.py", "name"],
        "EXPECT": {"verdict": "serialized", "cause": "own-lock"},
    },
    {
        "name": "login",
        "COMMAND": ["python", "connections_in_turn.py", "login"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "four",
        "COMMAND": ["python", "connections_in_turn.py", "four"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "one",
        "COMMAND": ["python", "connections_in_turn.py", "one"],
        "EXPECT": {
            "verdict": "none",
            "error": "*with one client for all greenlets HTTPS is serialized, with one for each it is concurrent*",
        },
    },
]
