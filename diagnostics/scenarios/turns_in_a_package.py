"""Greenlets take turns in the code of a package, which they call directly."""

import sys

from gevent import monkey

monkey.patch_all()

import gevent
import guarded_client
import requests

KINDS = {
    "lock": guarded_client.Locked,
    "semaphore": guarded_client.OfThreadings,
    "writer": guarded_client.Writer,
    "queue": guarded_client.Lending,
    "worker": guarded_client.OneWorker,
    "login": guarded_client.LoggingIn,
    "paced": guarded_client.Paced,
    "idle": guarded_client.Workers,
}


@guarded_client.synchronized
def fetch(number):
    guarded_client.request(number)


def main():
    if sys.argv[1] == "decorated":
        gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])
        return
    if sys.argv[1] == "each":
        clients = [guarded_client.Locked() for _ in range(10)]
    else:
        clients = [KINDS[sys.argv[1]]()] * 10
    gevent.joinall([gevent.spawn(client.get, number) for number, client in enumerate(clients)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
PATH = "site-packages"
RUNS = [
    {
        "name": "lock",
        "COMMAND": ["python", "turns_in_a_package.py", "lock"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at *guarded_client.py:36, in a package*"},
    },
    {
        "name": "decorated",
        "COMMAND": ["python", "turns_in_a_package.py", "decorated"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at *guarded_client.py:25, in a package*"},
    },
    {
        "name": "semaphore",
        "COMMAND": ["python", "turns_in_a_package.py", "semaphore"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at *guarded_client.py:36, in a package*"},
    },
    {
        "name": "writer",
        "COMMAND": ["python", "turns_in_a_package.py", "writer"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at *guarded_client.py:56, in a package*"},
    },
    {
        "name": "queue",
        "COMMAND": ["python", "turns_in_a_package.py", "queue"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at *guarded_client.py:71, in a package*"},
    },
    {
        "name": "worker",
        "COMMAND": ["python", "turns_in_a_package.py", "worker"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at *guarded_client.py:81 *"},
    },
    {
        "name": "each",
        "COMMAND": ["python", "turns_in_a_package.py", "each"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "login",
        "COMMAND": ["python", "turns_in_a_package.py", "login"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "paced",
        "COMMAND": ["python", "turns_in_a_package.py", "paced"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "idle",
        "COMMAND": ["python", "turns_in_a_package.py", "idle"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
