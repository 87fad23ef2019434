"""A lock of an object was made before patching: it stays a real one, and the second greenlet never gets it."""

import threading


class _Limiter(object):
    def __init__(self):
        self.guard = threading.Lock()  # <- where


_limiter = _Limiter()

from gevent import monkey

monkey.patch_all()

import time

import requests


def fetch(url):
    with _limiter.guard:
        time.sleep(0.001)
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "error", "cause": "made-before-patching"}
