"""A command that ends with an error before it fetches has shown nothing; after that it has."""

import argparse
import contextlib
import sys

from gevent import monkey

monkey.patch_all()

import requests

HOST = "https://localhost:9/"  # nothing listens there
SESSION = requests.Session()  # what it would be measured with


def main():
    kind = sys.argv[1]
    if kind == "message":
        sys.exit("error: API_TOKEN is not set")
    if kind == "code":
        sys.stdout.write("error: API_TOKEN is not set\n")
        sys.exit(2)
    if kind == "raised":
        sys.stderr.write("error: API_TOKEN is not set\n")
        raise SystemExit(3)
    if kind == "arguments":
        argparse.ArgumentParser().parse_args(["--unheard-of"])
    if kind == "after":
        with contextlib.suppress(requests.ConnectionError):
            SESSION.get(HOST)
        sys.exit("error: 1 failed")


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "message",
        "COMMAND": ["python", "ends_with_an_error.py", "message"],
        "EXPECT": {
            "verdict": "none",
            "error": "*ended with exit code 1, before it made an HTTPS connection*API_TOKEN is not set",
        },
    },
    {
        "name": "code",
        "COMMAND": ["python", "ends_with_an_error.py", "code"],
        "EXPECT": {
            "verdict": "none",
            "error": "*ended with exit code 2, before it made an HTTPS connection*API_TOKEN is not set",
        },
    },
    {
        "name": "raised",
        "COMMAND": ["python", "ends_with_an_error.py", "raised"],
        "EXPECT": {
            "verdict": "none",
            "error": "*ended with exit code 3, before it made an HTTPS connection*API_TOKEN is not set",
        },
    },
    {
        "name": "arguments",
        "COMMAND": ["python", "ends_with_an_error.py", "arguments"],
        "EXPECT": {
            "verdict": "none",
            "error": "*ended with exit code 2, before it made an HTTPS connection*--unheard-of",
        },
    },
    {
        "name": "after",
        "COMMAND": ["python", "ends_with_an_error.py", "after"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
