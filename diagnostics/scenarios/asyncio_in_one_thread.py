"""Everything is patched, and asyncio lets one thread have one running loop: the others fail."""

from gevent import monkey

monkey.patch_all()

import asyncio
import os
import ssl
from urllib.parse import urlsplit


async def _read(url):
    parts = urlsplit(url)
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    writer.write(("GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n" % parts.path).encode())
    assert b" 200 " in await reader.readline()
    writer.close()


def fetch(url):
    asyncio.run(_read(url))  # <- where


PACKAGES = ["gevent"]
PYTHONS = ["3"]
EXPECT = {"verdict": "error", "cause": "asyncio-client"}
