"""A response hook of a shared session hashes in C, without Python's lock: still in the one thread."""

from gevent import monkey

monkey.patch_all()

import hashlib
import sys

import requests

# Some builds of Python 2.7 have this function in Python only.
_ITERATIONS = 300000 if sys.version_info[0] > 2 else 30000


def _digest(answer, **_):
    hashlib.pbkdf2_hmac("sha256", answer.content, b"salt", _ITERATIONS)  # <- where


_session = requests.Session()
_session.hooks["response"].append(_digest)


def fetch(url):
    _session.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "cpu-bound"}
