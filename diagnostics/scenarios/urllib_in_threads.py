"""urllib in the threads of an executor, from greenlets: sockets are patched, threads are not."""

from gevent import monkey

monkey.patch_all(thread=False, queue=False)

import os
import ssl
import urllib.request
from concurrent.futures import ThreadPoolExecutor

_executor = ThreadPoolExecutor(10)


def _read(url):
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    with urllib.request.urlopen(url, context=context) as answer:
        answer.read()


def fetch(url):
    _executor.submit(_read, url).result()  # <- where


PACKAGES = ["gevent"]
PYTHONS = ["3"]
EXPECT = {"verdict": "serialized", "cause": "thread-client"}
