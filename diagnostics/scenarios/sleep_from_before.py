"""`from time import sleep` before patch_all(): the name keeps the real one, and the fetch sleeps."""

from time import sleep

from gevent import monkey

monkey.patch_all()

import requests


def fetch(url):
    requests.get(url).raise_for_status()
    sleep(0.2)  # <- where


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "blocking-call"}
