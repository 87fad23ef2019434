"""A library with a copy of urllib3 of its own injects pyOpenSSL into that; urllib3 itself is clean."""

import os
import shutil
import sys
import tempfile

import grequests  # noqa: F401

# What `pip install acme` would have brought.
_library = os.path.join(tempfile.mkdtemp(), "site-packages")
_found = [folder for folder in sys.path if os.path.isdir(os.path.join(folder, "urllib3"))][0]
shutil.copytree(os.path.join(_found, "urllib3"), os.path.join(_library, "acme", "_vendor", "urllib3"))
for _folder in ("acme", os.path.join("acme", "_vendor")):
    open(os.path.join(_library, _folder, "__init__.py"), "w").close()
sys.path.append(_library)

from acme._vendor import urllib3
from acme._vendor.urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where
_pool = urllib3.PoolManager(maxsize=100, ca_certs=os.environ["REQUESTS_CA_BUNDLE"])


def fetch(url):
    assert _pool.request("GET", url, retries=False).status == 200


PACKAGES = ["grequests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-vendored-copy"}
