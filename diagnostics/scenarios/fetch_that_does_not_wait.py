"""The fetch returns before its response is there, so it takes no time."""

from gevent import monkey

monkey.patch_all()

import gevent
import requests


def fetch(url):
    gevent.spawn(requests.get, url)
    gevent.sleep(0.1)


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "none", "error": "*its fetch returns before the response is there*"}
