"""The same with the copy in the project's own tree, under a name of its own."""

import os
import shutil
import sys
import tempfile

from gevent import monkey

monkey.patch_all(select=False)

_tree = tempfile.mkdtemp()
_found = [folder for folder in sys.path if os.path.isdir(os.path.join(folder, "urllib3"))][0]
shutil.copytree(os.path.join(_found, "urllib3"), os.path.join(_tree, "third_party_http"))
sys.path.append(_tree)

import third_party_http
from third_party_http.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where
_pool = third_party_http.PoolManager(maxsize=100, ca_certs=os.environ["REQUESTS_CA_BUNDLE"])


def fetch(url):
    assert _pool.request("GET", url, retries=False).status == 200


PACKAGES = ["gevent", "requests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-vendored-copy"}
