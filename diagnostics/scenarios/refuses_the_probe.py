"""What the probe's server is like makes requests fail: key, TLS version, delay, name, a proxy of the program."""

import contextlib
import os
import socket
import ssl
import sys

from gevent import monkey

monkey.patch_all()

import gevent
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

HOST = "https://127.0.0.1:9"  # nothing listens there
look_up = socket.getaddrinfo


class Tls(HTTPAdapter):
    def init_poolmanager(self, *args, **kwargs):
        if sys.argv[1] == "rsa":
            context = create_urllib3_context(ciphers="ECDHE-RSA-AES256-GCM-SHA384")
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        else:
            context = create_urllib3_context(ciphers="DEFAULT@SECLEVEL=0")
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        return super().init_poolmanager(*args, ssl_context=context, **kwargs)


class Impatient(HTTPAdapter):
    def send(self, request, **kwargs):
        # The short one is below the shortest delay that the probe tries, on a busy machine as well.
        kwargs["timeout"] = {"timeout": 0.15, "short timeout": (5, 0.045)}[sys.argv[1]]
        return super().send(request, **kwargs)


class Deadline(requests.Session):
    def request(self, *args, **kwargs):
        with gevent.Timeout(0.15):
            return super().request(*args, **kwargs)


def from_table(host, *args, **kwargs):
    if host != "127.0.0.1":
        raise socket.gaierror(socket.EAI_NONAME, "no service: %s" % host)
    return look_up(host, *args, **kwargs)


def elsewhere(host, port, *args, **kwargs):
    return look_up("127.0.0.1", 9, *args, **kwargs)


def main():
    kind = sys.argv[1]
    session = Deadline() if kind == "deadline" else requests.Session()
    if kind in ("rsa", "old"):
        session.mount("https://", Tls())
    elif kind in ("timeout", "short timeout"):
        session.mount("https://", Impatient())
    elif kind in ("table", "elsewhere"):
        socket.getaddrinfo = from_table if kind == "table" else elsewhere
    elif kind == "proxy":
        os.environ.update(HTTPS_PROXY="http://127.0.0.1:9", no_proxy="127.0.0.1", NO_PROXY="127.0.0.1")

    def fetch(number):
        with contextlib.suppress(requests.ConnectionError):
            session.get("%s/%d" % (HOST, number))

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
RUNS = [
    {
        "name": "rsa",
        "COMMAND": ["python", "refuses_the_probe.py", "rsa"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "old",
        "COMMAND": ["python", "refuses_the_probe.py", "old"],
        "EXPECT": {
            "verdict": "none",
            "error": "*handshake with the server of the probe failed*PROTOCOL*--url URL",
        },
    },
    {
        "name": "timeout",
        "COMMAND": ["python", "refuses_the_probe.py", "timeout"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "deadline",
        "COMMAND": ["python", "refuses_the_probe.py", "deadline"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "short timeout",
        "COMMAND": ["python", "refuses_the_probe.py", "short timeout"],
        "EXPECT": {"verdict": "none", "error": "*requests time out*after 0.2 s*shorter --delay*"},
    },
    {
        "name": "table",
        "COMMAND": ["python", "refuses_the_probe.py", "table"],
        "EXPECT": {
            "verdict": "none",
            "error": "*does not come to the server of the probe*no service*--url URL*",
        },
    },
    {
        "name": "elsewhere",
        "COMMAND": ["python", "refuses_the_probe.py", "elsewhere"],
        "EXPECT": {
            "verdict": "none",
            "error": "*does not come to the server of the probe*refused*--url URL*",
        },
    },
    {
        "name": "proxy",
        "COMMAND": ["python", "refuses_the_probe.py", "proxy"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
