"""A web application has a context for its own requests, and no request has come to it when it is probed."""

import ssl
import sys
import urllib.request

kind = sys.argv[1]


class Upstream:
    def __init__(self):
        self.contexts = {"default": ssl.create_default_context()}


early = listening = opener = upstream = None
if kind == "library":
    import default_context  # it has one that this program does not use
if kind == "server":
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
if kind == "attribute":
    upstream = Upstream()
if kind == "opener":
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
if kind == "early":
    early = ssl.create_default_context()

from gevent import monkey

monkey.patch_all()

import http.client

import gevent
from gevent.pywsgi import WSGIServer

late = ssl.create_default_context()


def application(environment, start_response):
    context = late if early is None else early
    connection = http.client.HTTPSConnection("localhost", 9, context=context)
    connection.request("GET", "/")
    start_response("200 OK", [])
    return [connection.getresponse().read()]


def main():
    WSGIServer(("127.0.0.1", 0), application, log=None).start()
    gevent.sleep(0.5)


if __name__ == "__main__":
    main()


PACKAGES = ["gevent"]
PYTHONS = ["3"]
PATH = "site-packages"
RUNS = [
    {
        "name": "early",
        "COMMAND": ["python", "context_of_idle_server.py", "early"],
        "EXPECT": {
            "verdict": "error",
            "cause": "context-before-patching",
            "where": "context_of_idle_server.py:25",
        },
    },
    {
        "name": "attribute",
        "COMMAND": ["python", "context_of_idle_server.py", "attribute"],
        "EXPECT": {
            "verdict": "error",
            "cause": "context-before-patching",
            "where": "context_of_idle_server.py:12",
        },
    },
    {
        "name": "opener",
        "COMMAND": ["python", "context_of_idle_server.py", "opener"],
        "EXPECT": {
            "verdict": "error",
            "cause": "context-before-patching",
            "where": "context_of_idle_server.py:23",
        },
    },
    {
        "name": "late",
        "COMMAND": ["python", "context_of_idle_server.py", "late"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "library",
        "COMMAND": ["python", "context_of_idle_server.py", "library"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "server",
        "COMMAND": ["python", "context_of_idle_server.py", "server"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
