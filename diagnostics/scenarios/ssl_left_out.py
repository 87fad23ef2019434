"""patch_all(ssl=False): the ssl of the standard library does not know gevent's sockets."""

from gevent import monkey

monkey.patch_all(ssl=False)  # <- where

import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "error", "cause": "ssl-unpatched"}
