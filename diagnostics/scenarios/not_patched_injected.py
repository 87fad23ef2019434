"""Greenlets, nothing patched, pyOpenSSL injected: patching select would not help."""

import gevent  # noqa: F401
from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "not-patched"}
