"""A plug-in of pytest imports requests before the first line of a test: the command has to patch."""

from gevent import monkey

monkey.patch_all()

import gevent
import requests


def _fetch():
    try:
        requests.get("https://localhost:9/", timeout=5)
    except (requests.RequestException, RecursionError):
        pass


def test_fetch():
    gevent.joinall([gevent.spawn(_fetch) for _ in range(3)])


PACKAGES = ["gevent", "requests", "pytest", "requests-mock"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "late",
        "COMMAND": [
            "python",
            "-m",
            "pytest",
            "-q",
            "-c",
            "/dev/null",
            "--rootdir=.",
            "-pno:cacheprovider",
            "mock_plugin_first.py",
        ],
        "EXPECT": {"verdict": "error", "cause": "patched-too-late", "where": "requests_mock/*"},
    },
    {
        "name": "patched",
        "COMMAND": [
            "python",
            "-m",
            "gevent.monkey",
            "--module",
            "pytest",
            "-q",
            "-c",
            "/dev/null",
            "--rootdir=.",
            "-pno:cacheprovider",
            "mock_plugin_first.py",
        ],
        "EXPECT": {"verdict": "concurrent"},
    },
]
