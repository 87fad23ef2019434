"""The fetch answers from a cache of its own, and asks no server."""

from gevent import monkey

monkey.patch_all()

_cache = {}


def fetch(url):
    return _cache.setdefault(url, "answer")


PACKAGES = ["gevent"]
EXPECT = {"verdict": "error", "cause": "no-request"}
