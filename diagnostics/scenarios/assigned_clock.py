"""The application puts clocks of its own in the place of the standard library's, and holds a lock."""

from gevent import monkey

monkey.patch_all()

import threading
import time

import requests

_lock = threading.Lock()
for _name in (
    "time",
    "monotonic",
    "perf_counter",
    "process_time",
    "clock_gettime",
    "time_ns",
    "monotonic_ns",
):
    setattr(time, _name, lambda *clock: 1)


def fetch(url):
    with _lock:  # <- where
        requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
