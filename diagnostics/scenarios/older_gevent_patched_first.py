"""patch_all() first with an older gevent: concurrent, with an injection as well."""

from gevent import monkey

monkey.patch_all()

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()

EXPECT = {"verdict": "concurrent"}
PYTHONS = ["3.11", "3.10", "3.9", "3.8", "3.7"]
PACKAGES = [
    "gevent==22.10.2",
    "greenlet<3.1",
    "grequests==0.7.0",
    "pyOpenSSL",
    "setuptools<70",
    "zope.event<5",
    "zope.interface<6.3",
]
