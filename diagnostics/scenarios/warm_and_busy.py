"""A session for each request costs 20 ms of CPU each: not serialization."""

from gevent import monkey

monkey.patch_all()

import requests


def fetch(url):
    with requests.Session() as session:
        session.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "concurrent"}
