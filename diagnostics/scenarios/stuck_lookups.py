"""Names that nobody answers take all of gevent's resolver threads, and every other look-up waits."""

import _socket
import time

_sleep = time.sleep
_answer = _socket.getaddrinfo


def _name_server(host, *args, **kwargs):
    """Stands for one that is silent about .invalid."""
    if str(host).startswith(("nobody", "b'nobody")):
        _sleep(600)
    return _answer(host, *args, **kwargs)


_socket.getaddrinfo = _name_server

from gevent import monkey

monkey.patch_all()

import socket

import gevent
import requests

for _number in range(30):
    gevent.spawn(socket.getaddrinfo, "nobody%d.invalid" % _number, 443)


def fetch(url):
    requests.get(url, timeout=30).raise_for_status()  # <- where


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "error", "cause": "dns-pool"}
