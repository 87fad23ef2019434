"""requests is imported, then patch_all(), pyOpenSSL injected: ssl is not used, so nothing breaks."""

import requests  # noqa: F401
from gevent import monkey

monkey.patch_all()

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "concurrent"}
