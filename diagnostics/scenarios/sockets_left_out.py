"""patch_all(socket=False): the ssl of gevent wraps what it is given, and that suffices."""

from gevent import monkey

monkey.patch_all(socket=False)

import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "concurrent"}
# The sockets of Python 2.7 and those of gevent refuse each other.
EXPECT_2 = {"verdict": "error", "cause": "sockets-unpatched"}
