"""gevent-openssl 1.2 is applied on Python 3: it wraps recv, and Python 3 uses recv_into."""

import gevent_openssl

gevent_openssl.monkey_patch()  # <- where

import grequests  # noqa: F401
from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()

PACKAGES = ["gevent-openssl==1.2", "grequests", "pyOpenSSL"]
PYTHONS = ["3"]
EXPECT = {"verdict": "serialized", "cause": "gevent-openssl-python3"}
