"""A connection pool of one that blocks."""

from gevent import monkey

monkey.patch_all()

import requests
from requests.adapters import HTTPAdapter

_session = requests.Session()
_session.mount("https://", HTTPAdapter(pool_maxsize=1, pool_block=True))  # <- where


def fetch(url):
    _session.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "pool-of-one"}
