"""patch_all(), then a library loads socket and ssl anew, and has the real ones again."""

from gevent import monkey

monkey.patch_all()

try:
    from importlib import reload
except ImportError:  # Python 2
    pass
import socket
import ssl

reload(socket)  # <- where
reload(ssl)

import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "original-restored"}
# The sockets of Python 2.7 and those of gevent refuse each other.
EXPECT_2 = {"verdict": "error", "cause": "original-restored"}
