"""A pool of four connections that blocks: ten requests take three delays, and that is meant."""

from gevent import monkey

monkey.patch_all()

import requests
from requests.adapters import HTTPAdapter

_session = requests.Session()
_session.mount("https://", HTTPAdapter(pool_maxsize=4, pool_block=True))  # <- where


def fetch(url):
    _session.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "concurrent", "cause": "small-pool"}
