"""A client of httpx was made before patching: it keeps an unpatched context."""

import os

import httpx

_client = httpx.Client(verify=os.environ["SSL_CERT_FILE"])  # <- where

from gevent import monkey

monkey.patch_all()


def fetch(url):
    _client.get(url).raise_for_status()


PACKAGES = ["gevent", "httpx"]
PYTHONS = ["3"]
EXPECT = {"verdict": "error", "cause": "context-before-patching"}
