"""The classic: grequests leaves select out, and pyOpenSSL is injected."""

import grequests  # noqa: F401
from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where

PACKAGES = ["grequests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select"}
