"""Greenlets make requests without TLS, too: to a service beside the program, or to a server that it is."""

import contextlib
import http.client
import sys

from gevent import monkey

monkey.patch_all()

import threading

import gevent
import requests
from gevent.pywsgi import WSGIServer
from requests.adapters import HTTPAdapter

HOST = "https://localhost:9/"  # nothing listens there
LOCK = threading.Lock()
SERVICE, SESSION = requests.Session(), requests.Session()
NARROW = requests.Session()
NARROW.mount("http://", HTTPAdapter(pool_maxsize=1, pool_block=True))


def fetch(number):
    with contextlib.suppress(requests.ConnectionError):
        SESSION.get(HOST + str(number))


def in_turn(number):
    with LOCK:
        fetch(number)


def slow(environ, start_response):
    gevent.sleep(0.3)
    start_response("200 OK", [])
    return [b"ok"]


def fetching(environ, start_response):
    in_turn(0)
    start_response("200 OK", [])
    return [b"ok"]


def poll(url, get):
    while True:
        get(url)


def with_http_client(url):
    connection = http.client.HTTPConnection(url[7:])
    connection.request("GET", "/")
    connection.getresponse().read()


def with_urllib3(url):
    requests.packages.urllib3.HTTPConnectionPool(url[7:]).request("GET", "/")


def main():
    kind = sys.argv[1]
    server = WSGIServer(("127.0.0.1", 0), fetching if kind == "server" else slow, log=None)
    server.start()
    url = "http://127.0.0.1:%d" % server.server_port
    if kind == "server":
        gevent.joinall([gevent.spawn(SERVICE.get, url) for _ in range(10)])
        return
    get = {
        "shared": SERVICE.get,
        "each": requests.get,
        "standard": with_http_client,
        "urllib3": with_urllib3,
        "narrow": NARROW.get,
        "wide": SERVICE.get,
    }[kind]
    polls = [gevent.spawn(poll, url, get) for _ in range(10)]
    gevent.sleep(0.1)
    work = fetch if kind in ("narrow", "wide") else in_turn
    gevent.joinall([gevent.spawn(work, number) for number in range(10)])
    gevent.killall(polls)


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "shared",
        "COMMAND": ["python", "plain_http_beside.py", "shared"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at plain_http_beside.py:31 *"},
    },
    {
        "name": "each",
        "COMMAND": ["python", "plain_http_beside.py", "each"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at plain_http_beside.py:31 *"},
    },
    {
        "name": "standard",
        "COMMAND": ["python", "plain_http_beside.py", "standard"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at plain_http_beside.py:31 *"},
    },
    {
        "name": "urllib3",
        "COMMAND": ["python", "plain_http_beside.py", "urllib3"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at plain_http_beside.py:31 *"},
    },
    {
        "name": "server",
        "COMMAND": ["python", "plain_http_beside.py", "server"],
        "EXPECT": {"verdict": "none", "error": "*greenlets waited at plain_http_beside.py:31 *"},
    },
    {
        "name": "narrow",
        "COMMAND": ["python", "plain_http_beside.py", "narrow"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "wide",
        "COMMAND": ["python", "plain_http_beside.py", "wide"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
