"""requests is imported, then patch_all(): every request ends in a RecursionError."""

import requests  # noqa: F401  # <- where
from gevent import monkey

monkey.patch_all()

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "error", "cause": "patched-too-late"}
# The contexts of Python 2.7 are not subclassed: no recursion there.
EXPECT_2 = {"verdict": "concurrent"}
