"""The application hands its fetches to an executor with one worker."""

from gevent import monkey

monkey.patch_all()

from concurrent.futures import ThreadPoolExecutor

import requests

_executor = ThreadPoolExecutor(1)


def fetch(url):
    _executor.submit(requests.get, url).result().raise_for_status()  # <- where


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
