"""pyOpenSSL carries the connections, for a moment without gevent; a call in a hook is what blocks."""

from gevent import monkey

monkey.patch_all()


import requests
import urllib3.contrib.pyopenssl

urllib3.contrib.pyopenssl.inject_into_urllib3()

_sleep = monkey.get_original("time", "sleep")


def _wait(response, *args, **kwargs):
    _sleep(0.2)  # <- where


def fetch(url):
    requests.get(url, hooks={"response": _wait}).raise_for_status()


PACKAGES = ["gevent", "requests", "pyopenssl"]
EXPECT = {"verdict": "serialized", "cause": "blocking-call"}
