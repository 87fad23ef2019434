"""import grequests and nothing else: select is not patched, which alone does not serialize."""

import grequests  # noqa: F401

PACKAGES = ["grequests"]
EXPECT = {"verdict": "concurrent"}
