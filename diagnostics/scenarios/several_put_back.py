"""patch_all(), then somebody puts the real select and the real sleep back; a wait of one's own uses both."""

from gevent import monkey

monkey.patch_all()

import select
import time

import requests

select.select = monkey.get_original("select", "select")  # <- where
time.sleep = monkey.get_original("time", "sleep")


def fetch(url):
    requests.get(url).raise_for_status()
    select.select([], [], [], 0.1)
    time.sleep(0.1)


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "original-restored"}
