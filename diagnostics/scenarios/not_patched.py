"""Greenlets, and nothing patched."""

import gevent  # noqa: F401
import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "not-patched"}
