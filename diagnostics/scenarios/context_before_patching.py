"""An SSLContext that was made before patch_all() does not know gevent's sockets: TypeError."""

import os
import ssl

context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])  # <- where

from gevent import monkey

monkey.patch_all()

try:
    from urllib.request import urlopen
except ImportError:  # Python 2
    from urllib2 import urlopen


def fetch(url):
    urlopen(url, context=context).read()


PACKAGES = ["gevent"]
EXPECT = {"verdict": "error", "cause": "context-before-patching"}
# The contexts of Python 2.7 are not subclassed: no recursion there.
EXPECT_2 = {"verdict": "concurrent"}
