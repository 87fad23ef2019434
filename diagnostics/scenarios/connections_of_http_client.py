"""A program without a client library: it makes connections of http.client's, or TLS connections itself."""

import contextlib
import http.client
import socket
import ssl
import sys
import time

_sleep = time.sleep
early = ssl.create_default_context()  # until `patch_all` this is the standard library's

from gevent import monkey

monkey.patch_all()

import gevent

HOST = "localhost", 9  # nothing listens there
late = ssl.create_default_context()


class WaitsForTheNetwork(http.client.HTTPSConnection):
    def connect(self):
        _sleep(0.05)
        super().connect()


def get(make):
    connection = make(*HOST)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    finally:
        connection.close()


def connect_to_nobody(context):
    ours, theirs = socket.socketpair()
    with theirs, context.wrap_socket(ours, server_hostname=HOST[0], do_handshake_on_connect=False):
        pass


def main():
    kind = sys.argv[1]
    fetch = {
        "early": lambda: get(lambda *host: http.client.HTTPSConnection(*host, context=early)),
        "late": lambda: get(lambda *host: http.client.HTTPSConnection(*host, context=late)),
        "waits": lambda: get(WaitsForTheNetwork),
        "socket": lambda: connect_to_nobody(late),
    }[kind]

    def one():
        with contextlib.suppress(OSError, TypeError, http.client.HTTPException):
            fetch()

    gevent.joinall([gevent.spawn(one) for _ in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "late",
        "COMMAND": ["python", "connections_of_http_client.py", "late"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "early",
        "COMMAND": ["python", "connections_of_http_client.py", "early"],
        "EXPECT": {
            "verdict": "error",
            "cause": "context-before-patching",
            "where": "connections_of_http_client.py:11",
        },
    },
    {
        "name": "waits",
        "COMMAND": ["python", "connections_of_http_client.py", "waits"],
        "EXPECT": {
            "verdict": "serialized",
            "cause": "blocking-call",
            "where": "connections_of_http_client.py:25",
        },
    },
    {
        "name": "socket",
        "COMMAND": ["python", "connections_of_http_client.py", "socket"],
        "EXPECT": {
            "verdict": "none",
            "error": "*opens TLS connections itself at connections_of_http_client.py:40*",
        },
    },
]
