"""truststore under another name, as pip has it: the remedy names that one."""

import os
import shutil
import sys
import tempfile

from gevent import monkey

monkey.patch_all()

_tree = tempfile.mkdtemp()
_found = [folder for folder in sys.path if os.path.isdir(os.path.join(folder, "truststore"))][0]
shutil.copytree(os.path.join(_found, "truststore"), os.path.join(_tree, "third_party_truststore"))
sys.path.append(_tree)

import third_party_truststore

third_party_truststore.inject_into_ssl()  # <- where

import requests  # noqa: E402, F401

PACKAGES = ["gevent", "requests", "truststore"]
PYTHONS = ["3.11", "3.12", "3.13", "3.10"]
EXPECT = {"verdict": "error", "cause": "truststore"}
