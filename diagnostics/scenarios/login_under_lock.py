"""One greenlet at a time logs in, then fetches: no more than two requests ever wait at once."""

from gevent import monkey

monkey.patch_all()

import threading

import requests

_lock = threading.Lock()


def fetch(url):
    with _lock:  # <- where
        requests.get(url + "/login").raise_for_status()
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
