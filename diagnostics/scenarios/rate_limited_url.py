"""The program makes four requests a second, as the server that it fetches from demands.

Run as a program with a folder it is that server: it makes a certificate there and prints its port.
"""

import sys

if __name__ != "__main__":
    from gevent import monkey

    monkey.patch_all()

    import threading
    import time

    import requests

    _lock = threading.Lock()
    _next = [0.0]


def fetch(url):
    with _lock:
        wait = _next[0] - time.time()
        if wait > 0:
            time.sleep(wait)  # <- where
        _next[0] = time.time() + 0.25
    requests.get(url).raise_for_status()


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
EXPECT = {"verdict": "concurrent", "cause": "rate-limit"}
SERVER = True


def _serve(folder, spacing=0.02):
    import asyncio
    import os
    import ssl
    import time

    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(os.path.join(folder, "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    due = [0.0]

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        early = time.monotonic() < due[0]
        due[0] = time.monotonic() + spacing
        await asyncio.sleep(0.2)
        status = b"429 Too Many Requests" if early else b"200 OK"
        writer.write(b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok" % status)
        await writer.drain()
        writer.close()

    async def serve():
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        sys.stdout.write("%d\n" % server.sockets[0].getsockname()[1])
        sys.stdout.flush()
        await server.serve_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    _serve(sys.argv[1])
