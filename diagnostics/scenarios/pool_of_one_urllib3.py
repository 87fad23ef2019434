"""The same made with urllib3 alone, which has one connection unless it is told otherwise."""

from gevent import monkey

monkey.patch_all()

import os

import urllib3

_pool = urllib3.PoolManager(block=True, ca_certs=os.environ["SSL_CERT_FILE"])  # <- where


def fetch(url):
    assert _pool.request("GET", url).status == 200


PACKAGES = ["gevent", "urllib3"]
EXPECT = {"verdict": "serialized", "cause": "pool-of-one"}
