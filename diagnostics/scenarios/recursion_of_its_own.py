"""The fetch itself recurses without end: the import of ssl before patching has done nothing."""

import ssl  # noqa: F401

from gevent import monkey

monkey.patch_all()

import requests


def _deeper(number):
    return _deeper(number + 1)  # <- where


def fetch(url):
    requests.get(url).raise_for_status()
    _deeper(0)


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
EXPECT = {"verdict": "error", "cause": "unexplained"}
