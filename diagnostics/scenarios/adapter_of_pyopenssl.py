"""An adapter uses pyOpenSSL by itself, without an injection, and select is not patched."""

import os

import grequests  # noqa: F401
import requests
from requests.adapters import HTTPAdapter
from urllib3.contrib.pyopenssl import PyOpenSSLContext
from urllib3.util.ssl_ import PROTOCOL_TLS


class PyOpenSSLAdapter(HTTPAdapter):
    def init_poolmanager(self, *args, **kwargs):
        context = PyOpenSSLContext(PROTOCOL_TLS)  # <- where
        context.load_verify_locations(os.environ["REQUESTS_CA_BUNDLE"])
        HTTPAdapter.init_poolmanager(self, *args, ssl_context=context, **kwargs)


def fetch(url):
    session = requests.Session()
    session.mount("https://", PyOpenSSLAdapter())
    session.get(url).raise_for_status()


PACKAGES = ["grequests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-own-context"}
