"""The client takes no answer of the probe's server: it ends the greenlet, or the process, or asks again."""

import contextlib
import os
import sys
import time

from gevent import monkey

monkey.patch_all()

import gevent
import requests

HOST = "https://localhost:9/"  # nothing listens there


def give_up(kind):
    if kind == "exit":
        sys.exit("not an answer of our API")
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "timeout":
        raise gevent.Timeout(3)
    if kind == "kill":
        raise gevent.GreenletExit
    if kind == "_exit":
        os._exit(3)
    if kind == "fork" and not os.fork():
        os._exit(3)


class Client(requests.Session):
    tries = {"poll": 1000, "retry": 3}.get(sys.argv[-1], 1)

    def get(self, url):
        for _ in range(self.tries):
            response = super().get(url)
            try:
                return response.json()
            except ValueError:
                give_up(sys.argv[1])
            time.sleep(0.5 if self.tries > 1 else 0)


def fetch(url):
    try:
        return requests.get(url, timeout=30).json()
    except ValueError:
        sys.exit("not an answer of our API")


def main():
    client = Client()

    def ask(number):
        with contextlib.suppress(requests.ConnectionError):
            client.get(HOST + str(number))

    gevent.joinall([gevent.spawn(ask, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "exit",
        "COMMAND": ["python", "wants_another_answer.py", "exit"],
        "EXPECT": {
            "verdict": "none",
            "error": "*failed with SystemExit: not an answer of our API (wants_another_answer.py:20)*--url URL*",
        },
    },
    {
        "name": "interrupt",
        "COMMAND": ["python", "wants_another_answer.py", "interrupt"],
        "EXPECT": {"verdict": "none", "error": "*failed with KeyboardInterrupt (wants*:22)*--url URL*"},
    },
    {
        "name": "timeout",
        "COMMAND": ["python", "wants_another_answer.py", "timeout"],
        "EXPECT": {"verdict": "none", "error": "*failed with *Timeout: 3 seconds (wants*:24)*--url URL*"},
    },
    {
        "name": "kill",
        "COMMAND": ["python", "wants_another_answer.py", "kill"],
        "EXPECT": {"verdict": "none", "error": "*failed with *GreenletExit (wants*:26)*--url URL*"},
    },
    {
        "name": "_exit",
        "COMMAND": ["python", "wants_another_answer.py", "_exit"],
        "EXPECT": {
            "verdict": "none",
            "error": "*ended while it was probed, by os._exit() at wants_another_answer.py:28*--url URL*",
        },
    },
    {
        "name": "fork",
        "COMMAND": ["python", "wants_another_answer.py", "fork"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "poll",
        "COMMAND": ["python", "wants_another_answer.py", "poll"],
        "EXPECT": {
            "verdict": "none",
            "error": "*answered * requests of its client, which did not come back: it sleeps at wants*--url URL*",
        },
    },
    {
        "name": "retry",
        "COMMAND": ["python", "wants_another_answer.py", "retry"],
        "EXPECT": {"verdict": "concurrent", "cause": "rate-limit", "where": "wants_another_answer.py:*"},
    },
    {
        "name": "named",
        "EXPECT": {
            "verdict": "none",
            "error": "*failed with SystemExit*(wants*:50) after the server of the probe had answered*--url URL*",
        },
    },
]
