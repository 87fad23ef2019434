"""A response hook computes for as long as the server takes."""

from gevent import monkey

monkey.patch_all()

import time

import requests


def _digest(answer, **_):
    body = answer.content  # before the clock starts: reading it may let the other greenlets run
    ends = time.time() + 0.2
    total = 0
    while time.time() < ends:
        total += sum(body.count(each) for each in (b"a", b"b", b"c"))  # <- where
    return None


def fetch(url):
    requests.get(url, hooks={"response": _digest}).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "cpu-bound"}
