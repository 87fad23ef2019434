"""What is loaded when it is looked at is looked at by gevent while it patches, and imports the client then."""

import importlib.util
import sys


def lazy_module(name):
    spec = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class LazySettings:
    loaded = None

    def load(self):
        if self.loaded is None:
            import requests

            LazySettings.loaded = {"client": requests}
        return self.loaded

    @property
    def __class__(self):
        self.load()
        return dict


if sys.argv[1] == "module":
    lazy_module("requests")
else:
    settings = LazySettings()

from gevent import monkey

monkey.patch_all()

import contextlib

import gevent
import requests

HOST = "https://localhost:9"  # nothing listens there


def fetch():
    with contextlib.suppress(requests.RequestException):
        requests.get(HOST)


gevent.joinall([gevent.spawn(fetch) for _ in range(3)])

PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "module",
        "COMMAND": ["python", "lazy_until_patched.py", "module"],
        "EXPECT": {"verdict": "error", "cause": "patched-too-late", "where": "lazy_until_patched.py:38"},
    },
    {
        "name": "settings",
        "COMMAND": ["python", "lazy_until_patched.py", "settings"],
        "EXPECT": {"verdict": "error", "cause": "patched-too-late", "where": "lazy_until_patched.py:20"},
    },
]
