"""patch_all(socket=False, ssl=False): the standard library's sockets block."""

from gevent import monkey

monkey.patch_all(socket=False, ssl=False)  # <- where

import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "sockets-unpatched"}
