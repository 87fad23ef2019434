"""The process may open fewer files than it has requests."""

from gevent import monkey

monkey.patch_all()

import os
import resource

import gevent
import requests

requests.utils.should_bypass_proxies("https://localhost/", no_proxy=None)
gevent.sleep(0.01)
_open = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (_open + 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def fetch(url):
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "error", "cause": "too-few-descriptors"}
