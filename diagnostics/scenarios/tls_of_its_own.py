"""Its TLS is of no loaded client: of sockets, smtplib, urllib, http.client; requests is loaded, too."""

import contextlib
import http.client
import smtplib
import socket
import ssl
import sys
import urllib.request

early = ssl.create_default_context()  # until `patch_all` this is the standard library's

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests
from gevent.server import StreamServer
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9/"  # nothing listens there
LOCK = threading.Lock()
late = ssl.create_default_context()
NARROW = requests.Session()
NARROW.mount("https://", HTTPAdapter(pool_maxsize=1, pool_block=True))


def by_socket(context):
    plain = socket.create_connection(("127.0.0.1", SERVER.server_port), 5)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        connection.recv(1000)


def in_turn():
    with LOCK:
        by_socket(late)


def by_smtp():
    smtplib.SMTP_SSL("127.0.0.1", SERVER.server_port, context=late)


def by_opener(context):
    urllib.request.urlopen(HOST, context=context)


def by_connection(context):
    http.client.HTTPSConnection("localhost", 9, context=context).request("GET", "/")


def fetch_all(get):
    def one():
        with contextlib.suppress(OSError, TypeError, smtplib.SMTPException):
            get()

    gevent.joinall([gevent.spawn(one) for _ in range(10)])


def main():
    kind = sys.argv[1]
    if kind == "both":
        gevent.spawn(by_socket, late).join()
    if kind == "look":
        with contextlib.suppress(OSError):
            gevent.spawn(by_opener, late).join()
    if kind == "settings":
        with contextlib.suppress(OSError):
            by_socket(late)
    fetch_all(
        {
            "early": lambda: by_socket(early),
            "late": lambda: by_socket(late),
            "opener": lambda: by_opener(early),
            "connection": lambda: by_connection(early),
            "late opener": lambda: by_opener(late),
            "turn": in_turn,
            "library": by_smtp,
            "both": lambda: NARROW.get(HOST),
            "look": lambda: NARROW.get(HOST),
            "settings": lambda: NARROW.get(HOST),
        }[kind]
    )


if __name__ == "__main__":
    SERVER = StreamServer(("127.0.0.1", 0), lambda connection, address: connection.close())
    SERVER.start()
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "early",
        "COMMAND": ["python", "tls_of_its_own.py", "early"],
        "EXPECT": {"verdict": "error", "cause": "context-before-patching", "where": "tls_of_its_own.py:11"},
    },
    {
        "name": "late",
        "COMMAND": ["python", "tls_of_its_own.py", "late"],
        "EXPECT": {"verdict": "none", "error": "*opens TLS connections itself at tls_of_its_own.py:33*"},
    },
    {
        "name": "opener",
        "COMMAND": ["python", "tls_of_its_own.py", "opener"],
        "EXPECT": {"verdict": "error", "cause": "context-before-patching", "where": "tls_of_its_own.py:11"},
    },
    {
        "name": "connection",
        "COMMAND": ["python", "tls_of_its_own.py", "connection"],
        "EXPECT": {"verdict": "error", "cause": "context-before-patching", "where": "tls_of_its_own.py:11"},
    },
    {
        "name": "late opener",
        "COMMAND": ["python", "tls_of_its_own.py", "late opener"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "turn",
        "COMMAND": ["python", "tls_of_its_own.py", "turn"],
        "EXPECT": {"verdict": "none", "error": "*tls_of_its_own.py:3*"},
    },
    {
        "name": "library",
        "COMMAND": ["python", "tls_of_its_own.py", "library"],
        "EXPECT": {"verdict": "none", "error": "*opens TLS connections itself at tls_of_its_own.py:44*"},
    },
    {
        "name": "both",
        "COMMAND": ["python", "tls_of_its_own.py", "both"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "tls_of_its_own.py:28"},
    },
    {
        "name": "settings",
        "COMMAND": ["python", "tls_of_its_own.py", "settings"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "tls_of_its_own.py:28"},
    },
    {
        "name": "look",
        "COMMAND": ["python", "tls_of_its_own.py", "look"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "tls_of_its_own.py:28"},
    },
]
