"""aiohttp in a program that patches sockets and ssl for gevent."""

from gevent import monkey

monkey.patch_all(thread=False, select=False)

import asyncio
import os
import ssl

import aiohttp


async def _read(url):
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        answer.raise_for_status()


def fetch(url):
    asyncio.new_event_loop().run_until_complete(_read(url))  # <- where


PACKAGES = ["gevent", "aiohttp"]
PYTHONS = ["3"]
EXPECT = {"verdict": "serialized", "cause": "asyncio-client"}
