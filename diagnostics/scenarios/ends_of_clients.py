"""A client whose end removes what it needs: a session or its adapter."""

import contextlib
import gc
import os
import sys
import tempfile

from gevent import monkey

monkey.patch_all()

import gevent
import requests
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9"  # nothing listens there


class Ending:
    """Keeps a token in a file, as others do a certificate, and removes it at its end."""

    def keep(self):
        handle, self.path = tempfile.mkstemp(prefix="token-")
        os.write(handle, b"secret")
        os.close(handle)

    def token(self):
        gc.collect()  # what is not used any more comes to its end
        with open(self.path) as kept:
            return kept.read()

    def __del__(self):
        os.remove(self.path)


class Session(Ending, requests.Session):
    def request(self, method, url, **kwargs):
        return super().request(method, url, headers={"Token": self.token()}, **kwargs)


class Sealed(Session):
    """One whose subclasses are refused."""

    def __init_subclass__(cls):
        raise TypeError("sealed")


class Adapter(Ending, HTTPAdapter):
    def send(self, request, **kwargs):
        request.headers["Token"] = self.token()
        return super().send(request, **kwargs)


def made(kind):
    session = {"session": Session, "sealed": Sealed}.get(kind, requests.Session)()
    if kind == "adapter":
        session.mount("https://", Adapter())
    (session.get_adapter(HOST) if kind == "adapter" else session).keep()
    return session


def main():
    def fetch(number):
        with contextlib.suppress(requests.ConnectionError):
            made(sys.argv[1]).get("%s/%d" % (HOST, number))

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "session",
        "COMMAND": ["python", "ends_of_clients.py", "session"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "sealed",
        "COMMAND": ["python", "ends_of_clients.py", "sealed"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "adapter",
        "COMMAND": ["python", "ends_of_clients.py", "adapter"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
