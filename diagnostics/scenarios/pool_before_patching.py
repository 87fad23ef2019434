"""The same with urllib3, whose pool was made before patch_all() as well."""

import os
import ssl

import urllib3

context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])  # <- where
_pool = urllib3.PoolManager(maxsize=100, ssl_context=context)

from gevent import monkey

monkey.patch_all()


def fetch(url):
    assert _pool.request("GET", url, retries=False).status == 200


PACKAGES = ["gevent", "urllib3"]
EXPECT = {"verdict": "error", "cause": "context-before-patching"}
