"""All wait at once for the first request, then one at a time for three more."""

from gevent import monkey

monkey.patch_all()

import threading

import requests

_lock = threading.Lock()


def fetch(url):
    requests.get(url).raise_for_status()
    with _lock:  # <- where
        for page in range(3):
            requests.get("%s/%d" % (url, page)).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
