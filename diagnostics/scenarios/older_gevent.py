"""The classic with an older gevent."""

import grequests  # noqa: F401
from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where

EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select"}
RUNS = [
    {
        "name": "22.10",
        "PYTHONS": ["3.11", "3.10", "3.9", "3.8", "3.7"],
        "PACKAGES": [
            "gevent==22.10.2",
            "greenlet<3.1",
            "grequests==0.7.0",
            "pyOpenSSL",
            "setuptools<70",
            "zope.event<5",
            "zope.interface<6.3",
        ],
    },
    {
        "name": "23.9",
        "PYTHONS": ["3.11", "3.12", "3.10", "3.9", "3.8"],
        "PACKAGES": ["gevent==23.9.1", "greenlet<3.2", "grequests==0.7.0", "pyOpenSSL"],
    },
    {
        "name": "24.11",
        "PYTHONS": ["3.11", "3.12", "3.13", "3.10", "3.9"],
        "PACKAGES": ["gevent==24.11.1", "greenlet<3.2", "grequests==0.7.0", "pyOpenSSL"],
    },
]
