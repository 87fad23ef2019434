"""The client is tied to the program's host: by an adapter at a prefix, or by a pool of that host."""

import contextlib
import functools
import sys

from gevent import monkey

monkey.patch_all(select=sys.argv[1:] != ["context"])

import ssl
import threading

import gevent
import requests
import urllib3
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9"  # nothing listens there


class OneAtATime(HTTPAdapter):
    lock = threading.Lock()

    def send(self, *args, **kwargs):
        with self.lock:
            return super().send(*args, **kwargs)


class OfPyopenssl(HTTPAdapter):
    def init_poolmanager(self, *args, **kwargs):
        from urllib3.contrib.pyopenssl import PyOpenSSLContext

        context = PyOpenSSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return super().init_poolmanager(*args, ssl_context=context, **kwargs)


class Nowhere(HTTPAdapter):
    def send(self, request, **kwargs):
        raise RuntimeError("not an allowed host: %s" % request.url)


def with_adapter(adapter):
    session = requests.Session()
    session.mount("https://", Nowhere())
    session.mount(HOST, adapter)
    return session.get


def get_with_its_own(url):
    return with_adapter(HTTPAdapter(1, 1, 0, True))(url)  # a pool of one, for each request


def main():
    get = get_with_its_own
    if sys.argv[1] == "pool":
        get = with_adapter(HTTPAdapter(pool_maxsize=1, pool_block=True))
    elif sys.argv[1] == "lock":
        get = with_adapter(OneAtATime())
    elif sys.argv[1] == "context":
        get = with_adapter(OfPyopenssl())
    elif sys.argv[1] == "plain":
        get = with_adapter(HTTPAdapter())
    elif sys.argv[1] == "urllib3":
        pool = urllib3.HTTPSConnectionPool("localhost", 9, maxsize=1, block=True)
        get = functools.partial(pool.request, "GET", retries=False)

    def fetch(number):
        with contextlib.suppress(requests.ConnectionError, urllib3.exceptions.HTTPError):
            get(HOST + "/%d" % number)

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests", "pyOpenSSL"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "allowed",
        "COMMAND": ["python", "client_of_one_host.py", "plain"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "for each request",
        "COMMAND": ["python", "client_of_one_host.py", "each"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "adapter",
        "COMMAND": ["python", "client_of_one_host.py", "pool"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "client_of_one_host.py:57"},
    },
    {
        "name": "lock",
        "COMMAND": ["python", "client_of_one_host.py", "lock"],
        "EXPECT": {"verdict": "serialized", "cause": "own-lock", "where": "client_of_one_host.py:26"},
    },
    {
        "name": "context",
        "COMMAND": ["python", "client_of_one_host.py", "context"],
        "EXPECT": {
            "verdict": "serialized",
            "cause": "pyopenssl-own-context",
            "where": "client_of_one_host.py:34",
        },
    },
    {
        "name": "pool",
        "COMMAND": ["python", "client_of_one_host.py", "urllib3"],
        "EXPECT": {"verdict": "serialized", "cause": "pool-of-one", "where": "client_of_one_host.py:65"},
    },
]
