"""requests is imported before grequests patches: a RecursionError."""

import requests  # noqa: F401  # <- where

import grequests  # noqa: F401  isort: skip

PACKAGES = ["grequests"]
EXPECT = {"verdict": "error", "cause": "patched-too-late"}
# The contexts of Python 2.7 are not subclassed: no recursion there.
EXPECT_2 = {"verdict": "concurrent"}
