"""patch_all(dns=False) and a slow name server: each look-up holds the hub."""

import socket
import time

_sleep = time.sleep
_answer = socket.getaddrinfo


def _name_server(*args, **kwargs):
    """Stands for one that takes its time."""
    _sleep(0.2)
    return _answer(*args, **kwargs)


socket.getaddrinfo = _name_server

from gevent import monkey

monkey.patch_all(dns=False)

import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "blocking-call", "where": "lookups_left_out.py:*"}
