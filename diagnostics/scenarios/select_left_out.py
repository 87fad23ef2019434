"""The application has copied grequests' line: patch_all(select=False), pyOpenSSL injected."""

from gevent import monkey

monkey.patch_all(thread=False, select=False)

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select"}
