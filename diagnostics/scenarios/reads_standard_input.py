"""What a command fetches, or its program, comes from its standard input."""

import contextlib
import sys

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests

SESSION, LOCK = requests.Session(), threading.Lock()


def fetch(url):
    with LOCK, contextlib.suppress(requests.ConnectionError):
        SESSION.get(url)


if __name__ == "__main__":
    gevent.joinall([gevent.spawn(fetch, line.strip()) for line in sys.stdin])


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "urls",
        "COMMAND": ["python", "reads_standard_input.py"],
        "INPUT": "https://localhost:9/1\nhttps://localhost:9/2\nhttps://localhost:9/3\nhttps://localhost:9/4\nhttps://localhost:9/5\n",
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at reads_standard_input.py:19 *"},
    },
    {
        "name": "program",
        "COMMAND": ["python", "-"],
        "INPUT": "import requests\nfrom gevent import monkey\nmonkey.patch_all()\nrequests.get('https://localhost:9/')\n",
        "EXPECT": {"verdict": "error", "cause": "patched-too-late", "where": "standard input, line 1"},
    },
]
