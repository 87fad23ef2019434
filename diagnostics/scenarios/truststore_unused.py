"""truststore is put into ssl, but pyOpenSSL carries the connections: a lock is what they wait for."""

from gevent import monkey

monkey.patch_all()

import threading

import requests
import truststore
import urllib3.contrib.pyopenssl

truststore.inject_into_ssl()
urllib3.contrib.pyopenssl.inject_into_urllib3()

_lock = threading.Lock()


def fetch(url):
    with _lock:  # <- where
        requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests", "pyopenssl", "truststore==0.10.5"]
# truststore needs Python 3.10.
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.10"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
