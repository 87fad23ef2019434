"""gevent patches, and the first fetch has eventlet patch over it."""

from gevent import monkey

monkey.patch_all()

import eventlet
import requests

patched = []


def fetch(url):
    if not patched:
        patched.append(True)
        eventlet.monkey_patch()  # <- where
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests", "eventlet"]
EXPECT = {"verdict": "error", "cause": "eventlet-client"}
