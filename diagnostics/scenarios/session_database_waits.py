"""A shared session, and a database driver in C that waits for a lock of the database."""

from gevent import monkey

monkey.patch_all()

import os
import sqlite3
import tempfile

import requests

_path = os.path.join(tempfile.mkdtemp(), "db")
_writer = sqlite3.connect(_path, isolation_level=None)
_writer.execute("BEGIN EXCLUSIVE")
_session = requests.Session()


def fetch(url):
    _session.get(url).raise_for_status()
    own = sqlite3.connect(_path, timeout=0.2)
    try:
        own.execute("CREATE TABLE seen (url)")  # <- where
    except sqlite3.OperationalError:
        pass  # locked, as it is here for ever
    finally:
        own.close()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "blocking-call"}
