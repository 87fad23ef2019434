"""ssl is imported and a server's context made before patching: nothing of that is used for requests."""

import http.client  # noqa: F401
import ssl

_CONTEXT = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

from gevent import monkey

monkey.patch_all()

import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
EXPECT = {"verdict": "concurrent"}
