"""A context of pyOpenSSL is made for several connections: all but the first fail since pyOpenSSL 26.2."""

import contextlib
import functools
import ssl
import sys

from gevent import monkey

monkey.patch_all()

import gevent
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.contrib.pyopenssl import PyOpenSSLContext

HOST = "https://localhost:9/"  # nothing listens there


class SetOnce(PyOpenSSLContext):
    done = False

    @property
    def verify_mode(self):
        return ssl.CERT_REQUIRED

    @verify_mode.setter
    def verify_mode(self, value):
        if not self.done:
            PyOpenSSLContext.verify_mode.fset(self, value)

    def load_verify_locations(self, *args, **kwargs):
        if not self.done:
            super().load_verify_locations(*args, **kwargs)

    def set_alpn_protocols(self, protocols):
        if not self.done:
            self.done = True
            super().set_alpn_protocols(protocols)


class WithContext(HTTPAdapter):
    def __init__(self, give):
        self.give = give
        super().__init__()

    def init_poolmanager(self, *args, **kwargs):
        return super().init_poolmanager(*args, ssl_context=self.give(), **kwargs)


def make(kind=PyOpenSSLContext):
    return kind(ssl.PROTOCOL_TLS_CLIENT)  # <- where


def session(give):
    made = requests.Session()
    made.mount("https://", WithContext(give))
    return made


def main():
    context = make()
    each = {
        "session": lambda: session(make).get,
        "set once": lambda: session(functools.partial(make, SetOnce)).get,
        "standard": lambda: session(ssl.create_default_context).get,
        "manager": lambda: functools.partial(urllib3.PoolManager(ssl_context=context).request, "GET"),
        "one context": lambda: lambda url: session(lambda: context).get(url),
    }[sys.argv[1]]()

    def fetch(number):
        with contextlib.suppress(requests.ConnectionError, urllib3.exceptions.HTTPError):
            each(HOST + str(number))

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests", "pyOpenSSL"]
PYTHONS = ["3.11", "3.12", "3.13", "3.10"]
RUNS = [
    {
        "name": "session",
        "COMMAND": ["python", "context_for_several_connections.py", "session"],
        "EXPECT": {"verdict": "error", "cause": "pyopenssl-context-used"},
    },
    {
        "name": "manager",
        "COMMAND": ["python", "context_for_several_connections.py", "manager"],
        "EXPECT": {"verdict": "error", "cause": "pyopenssl-context-used"},
    },
    {
        "name": "one context",
        "COMMAND": ["python", "context_for_several_connections.py", "one context"],
        "EXPECT": {"verdict": "error", "cause": "pyopenssl-context-used"},
    },
    {
        "name": "set once",
        "COMMAND": ["python", "context_for_several_connections.py", "set once"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "standard",
        "COMMAND": ["python", "context_for_several_connections.py", "standard"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "earlier",
        "PACKAGES": ["gevent", "requests", "pyOpenSSL==26.1.0"],
        "COMMAND": ["python", "context_for_several_connections.py", "session"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
