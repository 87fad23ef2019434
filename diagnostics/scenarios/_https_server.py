"""Serve over HTTPS for scenarios that bring a server; no application imports this."""

import asyncio
import os
import ssl
import sys
import time


def serve(folder, spacing=0.0):
    """Answer with 429 what comes earlier than ``spacing`` seconds after another request.

    Have the certificate in ``folder``, and print the port.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, "server.pem"))
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

    async def listen():
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        sys.stdout.write("%d\n" % server.sockets[0].getsockname()[1])
        sys.stdout.flush()
        await server.serve_forever()

    asyncio.run(listen())
