"""The program makes four requests a second, and no more: slow, and meant.

Run as a program with a folder it is the server of the run ``demanded``, which demands that rate.
"""

import sys

if __name__ != "__main__":
    from gevent import monkey

    monkey.patch_all()

    import threading
    import time

    import requests

    _lock = threading.Lock()
    _next = [0.0]


def fetch(url):
    with _lock:
        wait = _next[0] - time.time()
        if wait > 0:
            time.sleep(wait)  # <- where
        _next[0] = time.time() + 0.25
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "concurrent", "cause": "rate-limit"}
RUNS = [{"name": "chosen"}, {"name": "demanded", "SERVER": True}]


if __name__ == "__main__":
    from _https_server import serve

    serve(sys.argv[1], 0.02)
