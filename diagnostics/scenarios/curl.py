"""libcurl does its own waiting, in C: gevent cannot patch it."""

from gevent import monkey

monkey.patch_all()

import os

import pycurl


def fetch(url):
    curl = pycurl.Curl()
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.CAINFO, os.environ["SSL_CERT_FILE"])
    curl.setopt(pycurl.WRITEFUNCTION, len)
    curl.perform()  # <- where
    curl.close()


PACKAGES = ["gevent", "pycurl"]
# pycurl has no wheels for older ones.
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.10", "3.9", "3.8"]
EXPECT = {"verdict": "serialized", "cause": "blocking-call"}
