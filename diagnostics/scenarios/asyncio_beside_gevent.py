"""All TLS connections are asyncio's, beside gevent; requests is only loaded."""

import asyncio
import contextlib
import socket
import ssl
import sys

KIND = sys.argv[1]
if KIND == "patched":
    from gevent import monkey

    monkey.patch_all()

import threading

import gevent
import requests
from gevent.threadpool import ThreadPool

listening = socket.create_server(("127.0.0.1", 0))  # it accepts, and nobody answers
PORT = listening.getsockname()[1]
if KIND == "session":
    SESSION = requests.Session()


async def one():
    context = ssl.create_default_context()
    with contextlib.suppress(asyncio.TimeoutError, OSError):
        await asyncio.wait_for(asyncio.open_connection("127.0.0.1", PORT, ssl=context), 0.3)


async def both():
    await asyncio.gather(one(), one())


def main():
    gevent.sleep(0.01)
    asyncio.run(both())


def in_thread(start):
    gevent.sleep(0.01)
    start(lambda: asyncio.run(both()))


def joined(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


if __name__ == "__main__":
    if KIND == "thread":
        in_thread(joined)
    elif KIND == "pool":
        in_thread(lambda function: ThreadPool(1).spawn(function).get())
    else:
        main()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "main",
        "COMMAND": ["python", "asyncio_beside_gevent.py", "main"],
        "EXPECT": {
            "verdict": "none",
            "error": "*(asyncio_beside_gevent.py:39) are those of an event loop*",
        },
    },
    {
        "name": "patched",
        "COMMAND": ["python", "asyncio_beside_gevent.py", "patched"],
        "EXPECT": {
            "verdict": "none",
            "error": "*(asyncio_beside_gevent.py:39) are those of an event loop*",
        },
    },
    {
        "name": "thread",
        "COMMAND": ["python", "asyncio_beside_gevent.py", "thread"],
        "EXPECT": {
            "verdict": "none",
            "error": "*(asyncio_beside_gevent.py:44) are those of an event loop*",
        },
    },
    {
        "name": "pool",
        "COMMAND": ["python", "asyncio_beside_gevent.py", "pool"],
        "EXPECT": {
            "verdict": "none",
            "error": "*(asyncio_beside_gevent.py:44) are those of an event loop*",
        },
    },
    {
        "name": "session",
        "COMMAND": ["python", "asyncio_beside_gevent.py", "session"],
        "EXPECT": {"verdict": "serialized", "cause": "not-patched"},
    },
]
