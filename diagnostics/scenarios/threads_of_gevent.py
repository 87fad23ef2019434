"""Nothing is patched, and the requests run in threads: those of a pool of gevent's, or plain ones."""

import contextlib
import sys
import threading

import gevent
import requests
from gevent.threadpool import ThreadPool

HOST = "https://localhost:9"  # nothing listens there


def fetch(number):
    with contextlib.suppress(requests.ConnectionError):
        requests.get(HOST + "/%d" % number)


def main():
    if sys.argv[1] == "plain":
        gevent.sleep(0)
        threads = [threading.Thread(target=fetch, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return
    pool = ThreadPool(int(sys.argv[1]))
    pool.map(fetch, range(10))


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "ten",
        "COMMAND": ["python", "threads_of_gevent.py", "10"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "one",
        "COMMAND": ["python", "threads_of_gevent.py", "1"],
        "EXPECT": {"verdict": "serialized", "cause": "own-lock", "where": "threads_of_gevent.py:28"},
    },
    {
        "name": "plain",
        "COMMAND": ["python", "threads_of_gevent.py", "plain"],
        "EXPECT": {
            "verdict": "none",
            "error": "*its requests (threads_of_gevent.py:16) run in threads*--app MODULE:CALLABLE",
        },
    },
]
