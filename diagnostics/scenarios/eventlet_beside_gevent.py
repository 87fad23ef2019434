"""gevent patches, and the fetch uses eventlet's copy of urllib: its hub sleeps for all."""

from gevent import monkey

monkey.patch_all()

import os
import ssl

from eventlet.green.urllib import request  # <- where


def fetch(url):
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    request.urlopen(url, context=context).read()


PACKAGES = ["gevent", "eventlet"]
PYTHONS = ["3"]
EXPECT = {"verdict": "error", "cause": "eventlet-client"}
