"""Nothing is patched; that ssl is imported first has nothing to do with it."""

import ssl  # noqa: F401

import gevent  # noqa: F401  # <- where
import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "not-patched"}
