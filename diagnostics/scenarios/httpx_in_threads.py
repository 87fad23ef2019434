"""httpx in the threads of an executor, from greenlets: nothing is patched."""

import os
from concurrent.futures import ThreadPoolExecutor

import httpx

_client = httpx.Client(verify=os.environ["SSL_CERT_FILE"])
_executor = ThreadPoolExecutor(10)


def fetch(url):
    _executor.submit(_client.get, url).result().raise_for_status()  # <- where


PACKAGES = ["gevent", "httpx"]
PYTHONS = ["3"]
EXPECT = {"verdict": "serialized", "cause": "thread-client"}
