"""2019, stage 1: grequests without pyOpenSSL."""

import grequests  # noqa: F401

PACKAGES = [
    "gevent==1.4.0",
    "greenlet==0.4.16",
    "grequests==0.3.0",
    "requests==2.21.0",
    "urllib3==1.24.1",
]
EXPECT = {"verdict": "concurrent"}
RUNS = [{"name": "2.7", "PYTHONS": ["2.7"]}, {"name": "3.7", "PYTHONS": ["3.7"]}]
