"""A pool of threads was made before patching: its queue is a real one, in which the hub waits."""

from concurrent.futures import ThreadPoolExecutor

_pool = ThreadPoolExecutor(10)  # <- where

from gevent import monkey

monkey.patch_all()

import requests


def _get(url):
    requests.get(url).raise_for_status()


def fetch(url):
    _pool.submit(_get, url).result()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
EXPECT = {"verdict": "error", "cause": "made-before-patching"}
