"""httpx's plain client waits in sockets: gevent makes it concurrent."""

from gevent import monkey

monkey.patch_all()

import os

import httpx

_client = httpx.Client(verify=os.environ["SSL_CERT_FILE"])


def fetch(url):
    _client.get(url).raise_for_status()


PACKAGES = ["gevent", "httpx"]
PYTHONS = ["3"]
EXPECT = {"verdict": "concurrent"}
