"""requests is imported, then patch_all(): every request ends in a RecursionError."""

import requests  # noqa: F401  # <- where
from gevent import monkey

monkey.patch_all()

PACKAGES = ["gevent", "requests"]
# Python 2.7 has no recursion there: its contexts are not subclassed, and the requests are concurrent.
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.10", "3.9", "3.8", "3.7", "3.6"]
EXPECT = {"verdict": "error", "cause": "patched-too-late"}
