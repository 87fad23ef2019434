"""2019, stage 3: gevent-openssl is applied, which mends Python 2 and not Python 3."""

import gevent_openssl

gevent_openssl.monkey_patch()  # <- where

import grequests  # noqa: F401

PACKAGES = [
    "cryptography==2.6.1",
    "gevent==1.4.0",
    "gevent-openssl==1.2",
    "greenlet==0.4.16",
    "grequests==0.3.0",
    "pyOpenSSL==19.0.0",
    "requests==2.21.0",
    "urllib3==1.24.1",
]
RUNS = [
    {"name": "2.7", "PYTHONS": ["2.7"], "EXPECT": {"verdict": "concurrent"}},
    {
        "name": "3.7",
        "PYTHONS": ["3.7"],
        "EXPECT": {"verdict": "serialized", "cause": "gevent-openssl-python3"},
    },
]
