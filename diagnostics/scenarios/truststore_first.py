"""truststore injects itself into ssl, then gevent patches."""

import truststore

truststore.inject_into_ssl()  # <- where

from gevent import monkey

monkey.patch_all()

import requests  # noqa: F401

PACKAGES = ["gevent", "requests", "truststore==0.10.5"]
# truststore needs Python 3.10.
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.10"]
EXPECT = {"verdict": "error", "cause": "truststore"}
