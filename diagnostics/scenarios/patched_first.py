"""patch_all() first, then requests: as it should be."""

from gevent import monkey

monkey.patch_all()

import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "concurrent"}
