"""ssl is imported by several lines before patching: only the one that brings urllib3 does harm."""

import http.client  # noqa: F401
import ssl  # noqa: F401

import requests  # noqa: F401  # <- where
from gevent import monkey

monkey.patch_all()

PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
EXPECT = {"verdict": "error", "cause": "patched-too-late"}
