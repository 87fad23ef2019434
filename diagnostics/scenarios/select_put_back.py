"""patch_all(), then somebody puts the real select back; pyOpenSSL injected."""

from gevent import monkey

monkey.patch_all()

import select

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()
for _name in ("select", "poll"):
    setattr(select, _name, monkey.get_original("select", _name))  # <- where

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "original-restored"}
