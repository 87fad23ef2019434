"""The greenlet that connects first holds what all requests need: a lock, or the worker of an executor."""

import contextlib
import sys

from gevent import monkey

monkey.patch_all()

import threading
from concurrent.futures import ThreadPoolExecutor

import gevent
import requests

HOST = "https://localhost:9"  # nothing listens there


class LogsIn(requests.Session):
    """Fetches a token before its first request, under a lock."""

    def __init__(self):
        super().__init__()
        self.lock, self.token = threading.Lock(), None

    def request(self, method, url, **kwargs):
        with self.lock:
            if self.token is None:
                try:
                    super().request("POST", HOST + "/login")
                except requests.ConnectionError:
                    self.token = "of a guest"
        return super().request(method, url, **kwargs)


class OneAtATime(LogsIn):
    def request(self, method, url, **kwargs):
        with self.lock:
            return requests.Session.request(self, method, url, **kwargs)


class InThreads(requests.Session):
    """Returns futures, as requests-futures does."""

    def __init__(self, workers):
        super().__init__()
        self.executor = ThreadPoolExecutor(workers)

    def request(self, *args, **kwargs):
        return self.executor.submit(super().request, *args, **kwargs)


def main():
    kinds = {"login": LogsIn, "lock": OneAtATime}
    session = kinds[sys.argv[1]]() if sys.argv[1] in kinds else InThreads(int(sys.argv[1]))

    def fetch(number):
        with contextlib.suppress(requests.ConnectionError):
            response = session.get(HOST + "/%d" % number)
            getattr(response, "result", lambda: None)()

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "login",
        "COMMAND": ["python", "holds_what_the_probe_needs.py", "login"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "lock",
        "COMMAND": ["python", "holds_what_the_probe_needs.py", "lock"],
        "EXPECT": {
            "verdict": "serialized",
            "cause": "own-lock",
            "where": "holds_what_the_probe_needs.py:*",
        },
    },
    {
        "name": "ten workers",
        "COMMAND": ["python", "holds_what_the_probe_needs.py", "10"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "one worker",
        "COMMAND": ["python", "holds_what_the_probe_needs.py", "1"],
        "EXPECT": {
            "verdict": "serialized",
            "cause": "own-lock",
            "where": "holds_what_the_probe_needs.py:*",
        },
    },
]
