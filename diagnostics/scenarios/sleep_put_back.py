"""patch_all(), then somebody puts the real time.sleep back, and the fetch sleeps."""

from gevent import monkey

monkey.patch_all()

import time

import requests

time.sleep = monkey.get_original("time", "sleep")  # <- where


def fetch(url):
    requests.get(url).raise_for_status()
    time.sleep(0.2)


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "original-restored"}
