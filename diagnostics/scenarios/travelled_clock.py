"""time-machine stops the clock in the functions of the interpreter themselves, around a lock."""

from gevent import monkey

monkey.patch_all()

import threading

import requests
import time_machine

_lock = threading.Lock()


def fetch(url):
    with time_machine.travel("2020-02-29 12:00:00", tick=False), _lock:  # <- where
        requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests", "time-machine"]
PYTHONS = ["3"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
