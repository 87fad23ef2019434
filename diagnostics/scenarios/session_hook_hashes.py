"""A response hook of a shared session hashes in C, without Python's lock: still in the one thread."""

from gevent import monkey

monkey.patch_all()

import hashlib

import requests


def _digest(answer, **_):
    hashlib.pbkdf2_hmac("sha256", answer.content, b"salt", 300000)  # <- where


_session = requests.Session()
_session.hooks["response"].append(_digest)


def fetch(url):
    _session.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "cpu-bound"}
