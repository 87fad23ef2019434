"""urllib fetches at the start, and only then the sockets are patched, without ssl."""

import urllib.request

try:
    urllib.request.urlopen("https://localhost:9/")
except OSError:
    pass

import gevent.monkey

gevent.monkey.patch_socket()  # <- where

PACKAGES = ["gevent"]
PYTHONS = ["3"]
EXPECT = {"verdict": "serialized", "cause": "ssl-unpatched"}


def fetch(url):
    urllib.request.urlopen(url).read()
