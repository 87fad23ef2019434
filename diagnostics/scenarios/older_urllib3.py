"""The classic with urllib3 1.26."""

import grequests  # noqa: F401
from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where

PACKAGES = ["grequests==0.7.0", "pyOpenSSL==24.2.1", "requests==2.31.0", "urllib3==1.26.20"]
PYTHONS = ["3"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select"}
