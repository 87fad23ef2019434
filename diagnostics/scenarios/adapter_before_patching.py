"""A session of requests with an SSLContext that was made before patch_all(): RecursionError."""

import os
import ssl

context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])  # <- where

from gevent import monkey

monkey.patch_all()

import requests
from requests.adapters import HTTPAdapter


class Adapter(HTTPAdapter):
    def init_poolmanager(self, *args, **kwargs):
        HTTPAdapter.init_poolmanager(self, *args, ssl_context=context, **kwargs)


_session = requests.Session()
_session.mount("https://", Adapter(pool_maxsize=100))


def fetch(url):
    _session.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "error", "cause": "context-before-patching"}
# The contexts of Python 2.7 are not subclassed: no recursion there.
EXPECT_2 = {"verdict": "concurrent"}
