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
EXPECT = {"verdict": "serialized", "cause": "blocking-call"}
