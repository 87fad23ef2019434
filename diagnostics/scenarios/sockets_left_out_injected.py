"""patch_all(socket=False), pyOpenSSL injected: the block is inside of SSL_read, not in select.

Without a timeout: with one the socket does not block, and the wait is in select, which is patched.
"""

from gevent import monkey

monkey.patch_all(socket=False)

import requests
from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where


def fetch(url):
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-sockets"}
