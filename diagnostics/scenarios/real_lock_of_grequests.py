"""grequests leaves threading out as well: an application's lock is a real one, and stops everything."""

import threading

import grequests  # noqa: F401
import requests

_lock = threading.Lock()


def fetch(url):
    with _lock:  # <- where
        requests.get(url).raise_for_status()


PACKAGES = ["grequests"]
EXPECT = {"verdict": "error", "cause": "threads-unpatched"}
