"""The requests overlap, and then each waits for its turn to do something that gevent knows."""

from gevent import monkey

monkey.patch_all()

import subprocess
import threading

import requests

_lock = threading.Lock()


def fetch(url):
    requests.get(url).raise_for_status()
    with _lock:  # <- where
        subprocess.check_call(["sleep", "0.15"])


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
