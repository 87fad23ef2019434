"""A shared session, and a sleep that was taken by name before patching."""

from time import sleep

from gevent import monkey

monkey.patch_all()

import requests

_session = requests.Session()


def fetch(url):
    _session.get(url).raise_for_status()
    sleep(0.2)  # <- where


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "blocking-call"}
