"""2019, stage 2: pyOpenSSL is installed, and requests injects it by itself."""

import grequests  # noqa: F401

PACKAGES = [
    "cryptography==2.6.1",
    "gevent==1.4.0",
    "greenlet==0.4.16",
    "grequests==0.3.0",
    "pyOpenSSL==19.0.0",
    "requests==2.21.0",
    "urllib3==1.24.1",
]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select", "where": "requests/__init__.py:*"}
RUNS = [{"name": "2.7", "PYTHONS": ["2.7"]}, {"name": "3.7", "PYTHONS": ["3.7"]}]
