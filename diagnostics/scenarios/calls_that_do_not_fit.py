"""The client does not take what the probe's call has: a timeout of its own, fewer arguments, or more."""

import contextlib
import sys
import urllib.request

from gevent import monkey

monkey.patch_all()

import gevent
import requests
import urllib3

HOST = "https://localhost:9"  # nothing listens there


class Patient(requests.Session):
    def request(self, method, url, **kwargs):
        return super().request(method, url, timeout=10, **kwargs)


class Trusting(requests.Session):
    def request(self, method, url, **kwargs):
        return super().request(method, url, verify=True, **kwargs)


class Narrow(requests.Session):
    def request(self, method, path, data=None, headers=None):
        return super().request(method, HOST + path, data=data, headers=headers, timeout=10)


class Prepared(requests.Session):
    def send(self, request):
        return super().send(request, timeout=10, verify=True)


class Strict(requests.Session):
    def request(self, method, url, **kwargs):
        if kwargs.get("timeout") is not None:
            raise ValueError("the timeout is not yours to choose")
        try:
            return super().request(method, url, timeout=10, **kwargs)
        except TypeError as error:
            raise RuntimeError("wrong arguments") from error


class Signed(requests.Session):
    def request(self, method, url, signature):
        return super().request(method, url, headers={"Signature": signature})


class Computing(requests.Session):
    def request(self, method, url, **kwargs):
        response = super().request(method, url, **kwargs)
        return response.text + 1


class Manager(urllib3.PoolManager):
    def request(self, method, url, body=None):
        return super().request(method, url, body=body, timeout=10, retries=False)


class Pool(urllib3.HTTPSConnectionPool):
    def urlopen(self, method, url, **kwargs):
        return super().urlopen(method, url, timeout=10, **{"retries": False, **kwargs})


class Opener(urllib.request.OpenerDirector):
    def open(self, url):
        return super().open(url, timeout=10)


def wrapped(function):
    def call(*args, **kwargs):
        return function(*args, timeout=10, **kwargs)

    return call


def opener():
    made = Opener()
    for each in (urllib.request.HTTPSHandler(), urllib.request.HTTPErrorProcessor()):
        made.add_handler(each)
    return made.open


def get_of(kind):
    if kind == "opener":
        return opener()
    if kind == "pool":
        pool = Pool("localhost", 9)
        return lambda url: pool.urlopen("GET", url[len(HOST) :])
    if kind == "plain":
        requests.api.request = wrapped(requests.api.request)
        return requests.get
    client = {
        "timeout": Patient,
        "verify": Trusting,
        "narrow": Narrow,
        "prepared": Prepared,
        "strict": Strict,
        "signed": Signed,
        "computing": Computing,
        "manager": Manager,
    }.get(kind, requests.Session)()
    if kind == "narrow":
        return lambda url: client.request("GET", url[len(HOST) :])
    if kind == "manager":
        return lambda url: client.request("GET", url)
    if kind == "prepared":
        return lambda url: client.send(client.prepare_request(requests.Request("GET", url)))
    if kind == "signed":
        return lambda url: client.request("GET", url, "secret")
    if kind == "wrapped":
        client.request = wrapped(client.request)
    return client.get


def main():
    get = get_of(sys.argv[1])

    def fetch(number):
        with contextlib.suppress(OSError, urllib3.exceptions.HTTPError):
            get("%s/%d" % (HOST, number))

    gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])


if __name__ == "__main__":
    main()


PACKAGES = ["gevent", "requests", "urllib3"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "timeout",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "timeout"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "verify",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "verify"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "narrow",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "narrow"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "prepared",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "prepared"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "strict",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "strict"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "wrapped",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "wrapped"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "plain",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "plain"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "manager",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "manager"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "pool",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "pool"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "opener",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "opener"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "signed",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "signed"],
        "EXPECT": {
            "verdict": "none",
            "error": "*no call that the probe knows fits*missing*'signature' (calls_that_do_not_fit.py:49)*--app MODULE:CALLABLE",
        },
    },
    {
        "name": "computing",
        "COMMAND": ["python", "calls_that_do_not_fit.py", "computing"],
        "EXPECT": {
            "verdict": "none",
            "error": "*failed with TypeError*calls_that_do_not_fit.py:*Name a fetch: --app MODULE:CALLABLE",
        },
    },
]
