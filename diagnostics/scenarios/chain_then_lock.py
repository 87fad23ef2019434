"""Three requests in a row at the same time as all others, and a fourth one under a lock."""

from gevent import monkey

monkey.patch_all()

import threading

import requests

_session = requests.Session()
_lock = threading.Lock()


def fetch(url):
    for page in range(3):
        _session.get("%s/%d" % (url, page)).raise_for_status()
    with _lock:  # <- where
        _session.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
