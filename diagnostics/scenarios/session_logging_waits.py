"""A shared session, and a logging handler that waits for a pipe that somebody else reads slowly."""

import os
import subprocess
import sys

_OTHER = "import os, time\nwhile os.read(0, 1):\n    time.sleep(0.2)\n    os.write(1, b'.')\n"
_other = subprocess.Popen(
    [sys.executable, "-E", "-c", _OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
_asks, _hears = _other.stdin.fileno(), _other.stdout.fileno()

from gevent import monkey

monkey.patch_all()

import logging

import requests


class _Handler(logging.Handler):
    def emit(self, record):
        os.write(_asks, b"?")
        os.read(_hears, 1)  # <- where


_log = logging.getLogger("app")
_log.addHandler(_Handler())
_session = requests.Session()


def fetch(url):
    _session.get(url).raise_for_status()
    _log.warning("fetched %s", url)


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "blocking-call"}
