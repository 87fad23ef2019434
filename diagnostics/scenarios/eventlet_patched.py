"""eventlet patches the standard library, and gevent runs the greenlets."""

import eventlet

eventlet.monkey_patch()  # <- where

import requests


def fetch(url):
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests", "eventlet"]
EXPECT = {"verdict": "error", "cause": "eventlet-client"}
