"""The application lets one greenlet at a time through a semaphore of gevent's."""

from gevent import monkey

monkey.patch_all()

import requests
from gevent.lock import BoundedSemaphore

_one = BoundedSemaphore(1)


def fetch(url):
    with _one:  # <- where
        requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
