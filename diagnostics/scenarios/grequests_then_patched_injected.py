"""The classic mended by the application: patch_all() behind grequests patches select as well."""

import grequests  # noqa: F401
from gevent import monkey

monkey.patch_all()

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()

PACKAGES = ["grequests", "pyOpenSSL"]
EXPECT = {"verdict": "concurrent"}
