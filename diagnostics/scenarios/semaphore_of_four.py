"""A semaphore lets four requests through at once, by gevent's lock."""

from gevent import monkey

monkey.patch_all()

import requests
from gevent.lock import BoundedSemaphore

_four = BoundedSemaphore(4)


def fetch(url):
    with _four:  # <- where
        requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "concurrent", "cause": "small-pool"}
