"""Nothing is patched, and the requests run in threads: those of a pool of gevent's, or plain ones."""

import contextlib
import sys
import threading
from urllib.request import urlopen

import gevent
import requests
from gevent.threadpool import ThreadPool

HOST = "https://localhost:9"  # nothing listens there


def fetch(number):
    with contextlib.suppress(requests.ConnectionError):
        requests.get(HOST + "/%d" % number)


def main():
    if sys.argv[1] in ("plain", "plain given"):
        gevent.sleep(0)
        what, args = (fetch, (0,)) if sys.argv[1] == "plain" else (requests.get, (HOST,))
        threads = [threading.Thread(target=what, args=args) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return
    pool = ThreadPool(int(sys.argv[1]))
    if len(sys.argv) > 2:
        # No line of the user's is on the stack of its thread.
        call = urlopen if sys.argv[3:] else requests.get
        given = [pool.spawn(call, HOST) for _ in range(int(sys.argv[2]))]
        gevent.wait(given)
        return
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
        "EXPECT": {"verdict": "serialized", "cause": "own-lock", "where": "threads_of_gevent.py:30"},
    },
    {
        "name": "given",
        "COMMAND": ["python", "threads_of_gevent.py", "1", "10"],
        "EXPECT": {"verdict": "serialized", "cause": "own-lock", "where": "threads_of_gevent.py:30"},
    },
    {
        "name": "given urlopen",
        "COMMAND": ["python", "threads_of_gevent.py", "1", "10", "urlopen"],
        "EXPECT": {"verdict": "serialized", "cause": "own-lock", "where": "threads_of_gevent.py:30"},
    },
    {
        "name": "given two",
        "COMMAND": ["python", "threads_of_gevent.py", "2", "2"],
        "EXPECT": {"verdict": "none", "error": "*only 2 were seen in the pool*"},
    },
    {
        "name": "plain given",
        "COMMAND": ["python", "threads_of_gevent.py", "plain given"],
        "EXPECT": {"verdict": "none", "error": "*run in threads*--app MODULE:CALLABLE"},
    },
    {
        "name": "plain",
        "COMMAND": ["python", "threads_of_gevent.py", "plain"],
        "EXPECT": {
            "verdict": "none",
            "error": "*its requests (threads_of_gevent.py:17) run in threads*--app MODULE:CALLABLE",
        },
    },
]
