"""A lock that is tried again after a sleep, around a fetch from a server that is none of ours.

Run as a program with a folder it is that server: it makes a certificate there and prints its port.
"""

import sys

if __name__ != "__main__":
    from gevent import monkey

    monkey.patch_all()

    import threading
    import time

    import requests

    _lock = threading.Lock()


def fetch(url):
    while not _lock.acquire(False):
        time.sleep(0.05)  # <- where
    try:
        requests.get(url).raise_for_status()
    finally:
        _lock.release()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "own-lock"}
SERVER = True


if __name__ == "__main__":
    from _https_server import serve

    serve(sys.argv[1])
