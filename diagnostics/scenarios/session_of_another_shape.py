"""The session puts a base URL in front, returns what it has parsed, checks the answer, or has slots."""

import contextlib
import sys

from gevent import monkey

monkey.patch_all()

import gevent
import requests

HOST = "https://localhost:9"  # nothing listens there


class WithBase(requests.Session):
    base = ""

    def request(self, method, path, **kwargs):
        return super().request(method, self.base + path, **kwargs)


class Parses(WithBase):
    def get(self, path):
        return {"text": super().get(path).text}


class Versioned(requests.Session):
    def request(self, method, path, **kwargs):
        return super().request(method, HOST + "/v1" + path, **kwargs)


class Slotted(requests.Session):
    __slots__ = ("token",)

    def request(self, method, path, **kwargs):
        return super().request(method, path, headers={"Authorization": self.token}, **kwargs)


def check(response, *args, **kwargs):
    if response.text != "as expected":
        raise ValueError("unexpected answer %r" % response.text[:20])


def main():
    session = {"base": WithBase, "parsed": Parses, "version": Versioned, "slots": Slotted}.get(
        sys.argv[1], requests.Session
    )()
    session.base = HOST
    session.token = "secret"
    prefix = HOST if sys.argv[1] == "slots" else ""
    if sys.argv[1] == "answer":
        session.hooks["response"].append(check)
        prefix = HOST

    def fetch(number):
        with contextlib.suppress(requests.ConnectionError):
            session.get("%s/%d" % (prefix, number))

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "version",
        "COMMAND": ["python", "session_of_another_shape.py", "version"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "base",
        "COMMAND": ["python", "session_of_another_shape.py", "base"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "parsed",
        "COMMAND": ["python", "session_of_another_shape.py", "parsed"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "answer",
        "COMMAND": ["python", "session_of_another_shape.py", "answer"],
        "EXPECT": {
            "verdict": "none",
            "error": "*failed with ValueError: unexpected answer 'x*(session_of_another_shape.py:42)*--url URL*",
        },
    },
    {
        "name": "slots",
        "COMMAND": ["python", "session_of_another_shape.py", "slots"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
