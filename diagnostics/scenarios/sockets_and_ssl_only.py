"""patch_socket() and patch_ssl() only: enough for the standard library's ssl."""

from gevent import monkey

monkey.patch_socket()
monkey.patch_ssl()

import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "concurrent"}
