"""The application holds a lock of its own while it fetches."""

from gevent import monkey

monkey.patch_all()

import threading

import requests

_lock = threading.Lock()


def fetch(url):
    with _lock:  # <- where
        requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
