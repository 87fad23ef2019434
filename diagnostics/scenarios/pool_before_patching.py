"""The same with urllib3, whose pool was made before patch_all() as well: it is urllib3 that came too early."""

import os
import ssl  # <- where

import urllib3

context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
_pool = urllib3.PoolManager(maxsize=100, ssl_context=context)

from gevent import monkey

monkey.patch_all()


def fetch(url):
    assert _pool.request("GET", url, retries=False).status == 200


PACKAGES = ["gevent", "urllib3"]
EXPECT = {"verdict": "error", "cause": "patched-too-late"}
# The contexts of Python 2.7 are not subclassed: no recursion there.
EXPECT_2 = {"verdict": "concurrent"}
