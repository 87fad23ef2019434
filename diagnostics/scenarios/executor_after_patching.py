"""The same pool of threads, made after patching."""

from gevent import monkey

monkey.patch_all()

from concurrent.futures import ThreadPoolExecutor

import requests

_pool = ThreadPoolExecutor(10)


def _get(url):
    requests.get(url).raise_for_status()


def fetch(url):
    _pool.submit(_get, url).result()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
EXPECT = {"verdict": "concurrent"}
