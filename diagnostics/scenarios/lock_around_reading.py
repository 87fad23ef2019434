"""The requests are made at once; the answers, and what they refer to, are read under a lock."""

from gevent import monkey

monkey.patch_all()

import threading

import requests

_lock = threading.Lock()


def fetch(url):
    answer = requests.get(url, stream=True)
    with _lock:  # <- where
        answer.raise_for_status()
        requests.get(url + "/" + answer.text[:1]).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
