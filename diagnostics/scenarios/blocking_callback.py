"""A response hook waits for the answer of another process, by a pipe that gevent does not know."""

import os
import subprocess
import sys

_OTHER = "import os, time\nwhile os.read(0, 1):\n    time.sleep(0.2)\n    os.write(1, b'.')\n"
_other = subprocess.Popen(
    [sys.executable, "-E", "-c", _OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)

from gevent import monkey

monkey.patch_all()

import requests


def _check(answer, **_):
    os.write(_other.stdin.fileno(), b"?")
    os.read(_other.stdout.fileno(), 1)  # <- where


def fetch(url):
    requests.get(url, hooks={"response": _check}).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "blocking-call"}
