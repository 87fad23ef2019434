"""Each fetch makes five requests, one after the other: five delays, and as concurrent as one."""

from gevent import monkey

monkey.patch_all()

import requests

_session = requests.Session()


def fetch(url):
    for page in range(5):
        _session.get("%s/%d" % (url, page)).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "concurrent"}
