"""A context of truststore's for one adapter, without an injection: gevent's ssl does not bear it."""

from gevent import monkey

monkey.patch_all()

import ssl

import requests
import truststore
from requests.adapters import HTTPAdapter


class Adapter(HTTPAdapter):
    def init_poolmanager(self, *args, **kwargs):
        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # <- where
        HTTPAdapter.init_poolmanager(self, *args, ssl_context=context, **kwargs)


def fetch(url):
    with requests.Session() as session:
        session.mount("https://", Adapter())
        session.get(url).raise_for_status()


PACKAGES = ["gevent", "requests", "truststore==0.10.5"]
# truststore needs Python 3.10.
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.10"]
EXPECT = {"verdict": "error", "cause": "truststore"}
