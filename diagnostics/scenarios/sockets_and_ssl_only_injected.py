"""patch_socket() and patch_ssl() only, pyOpenSSL injected: it waits in a select that is not patched."""

from gevent import monkey

monkey.patch_socket()
monkey.patch_ssl()

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select"}
