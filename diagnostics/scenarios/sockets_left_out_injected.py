"""patch_all(socket=False), pyOpenSSL injected: the block is inside of SSL_read, not in select."""

from gevent import monkey

monkey.patch_all(socket=False)

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-sockets"}
