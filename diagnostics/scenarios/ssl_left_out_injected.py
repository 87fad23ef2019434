"""patch_all(ssl=False), pyOpenSSL injected: concurrent, for ssl is not used."""

from gevent import monkey

monkey.patch_all(ssl=False)

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "concurrent"}
