"""The client is of httpx2, what httpx has become: with a narrow pool, a hook, a transport that wraps one, or an end."""

import contextlib
import gc
import socket
import ssl
import sys
import time

_sleep = time.sleep

from gevent import monkey

monkey.patch_all()

import gevent
import httpx2

TOKEN = ["secret"]


def wait(request):
    _sleep(0.05)


class Wraps(httpx2.BaseTransport):
    __slots__ = ("inner",)

    def __init__(self):
        self.inner = [httpx2.HTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))]

    def handle_request(self, request):
        return self.inner[0].handle_request(request)


class Hides(httpx2.BaseTransport):
    def __init__(self):
        inner = httpx2.HTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self.handled = inner.handle_request

    def handle_request(self, request):
        return self.handled(request)


class Ending(httpx2.Client):
    """A client that logs out at its end, and is used no more."""

    def get(self, url):
        gc.collect()  # what is not used any more comes to its end
        return super().get(url, headers={"Token": TOKEN[0]})

    def __del__(self):
        TOKEN.clear()


def main():
    kind = sys.argv[1]
    limits = httpx2.Limits(max_connections=1 if kind == "one" else 100)
    hooks = {"request": [wait]} if kind == "hook" else {}
    transports = {"wrapped": Wraps, "hidden": Hides}
    transport = transports[kind]() if kind in transports else None
    client = httpx2.Client(limits=limits, event_hooks=hooks, timeout=60, transport=transport)
    listener = socket.create_server(("localhost", 0))  # of which nobody accepts connections
    host = "https://localhost:%d" % listener.getsockname()[1]

    def fetch(number):
        with contextlib.suppress(httpx2.HTTPError):
            (Ending(timeout=60) if kind == "ended" else client).get("%s/%d" % (host, number))

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
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "httpx2_clients.py:62"},
    },
    {
        "name": "ended",
        "COMMAND": ["python", "httpx2_clients.py", "ended"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "hook",
        "COMMAND": ["python", "httpx2_clients.py", "hook"],
        "EXPECT": {"verdict": "serialized", "cause": "blocking-call", "where": "httpx2_clients.py:23"},
    },
    {
        "name": "wrapped",
        "COMMAND": ["python", "httpx2_clients.py", "wrapped"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "hidden",
        "COMMAND": ["python", "httpx2_clients.py", "hidden"],
        "EXPECT": {
            "verdict": "none",
            "error": "*its client at httpx2_clients.py:42 has CA certificates of its own*--url URL",
        },
    },
]
