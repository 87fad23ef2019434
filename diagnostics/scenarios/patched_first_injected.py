"""patch_all() first, pyOpenSSL injected: the injection alone does not serialize."""

from gevent import monkey

monkey.patch_all()

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "concurrent"}
