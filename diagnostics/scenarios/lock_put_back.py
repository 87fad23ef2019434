"""patch_all(), then a real lock in the application: a greenlet that holds it stops all others."""

from gevent import monkey

monkey.patch_all()

import requests

_lock = monkey.get_original("threading", "Lock")()


def fetch(url):
    with _lock:  # <- where
        requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "error", "cause": "own-lock"}
