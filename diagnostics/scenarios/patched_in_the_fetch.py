"""The fetch itself patches, and leaves ssl out."""

import requests
from gevent import monkey


def fetch(url):
    monkey.patch_all(ssl=False)  # <- where
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "ssl-unpatched"}
# The sockets of Python 2.7 and those of gevent refuse each other.
EXPECT_2 = {"verdict": "error", "cause": "ssl-unpatched"}
