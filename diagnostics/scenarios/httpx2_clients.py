"""The client is of httpx2, what httpx has become: with room for one connection, or with a hook that waits."""

import contextlib
import socket
import sys
import time

_sleep = time.sleep

from gevent import monkey

monkey.patch_all()

import gevent
import httpx2


def wait(request):
    _sleep(0.05)


def main():
    kind = sys.argv[1]
    limits = httpx2.Limits(max_connections=1 if kind == "one" else 100)
    hooks = {"request": [wait]} if kind == "hook" else {}
    client = httpx2.Client(limits=limits, event_hooks=hooks, timeout=60)
    listener = socket.create_server(("localhost", 0))  # of which nobody accepts connections
    host = "https://localhost:%d" % listener.getsockname()[1]

    def fetch(number):
        with contextlib.suppress(httpx2.HTTPError):
            client.get("%s/%d" % (host, number))

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "httpx2"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
RUNS = [
    {
        "name": "wide",
        "COMMAND": ["python", "httpx2_clients.py", "wide"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "one",
        "COMMAND": ["python", "httpx2_clients.py", "one"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "httpx2_clients.py:26"},
    },
    {
        "name": "hook",
        "COMMAND": ["python", "httpx2_clients.py", "hook"],
        "EXPECT": {"verdict": "serialized", "cause": "blocking-call", "where": "httpx2_clients.py:19"},
    },
]
