"""Run a gevent pool with c-ares over many hosts: a connection for each file, TLS sessions kept per name.

It is the least that such a program can do: no retries, no limits, no checks but the length of the body.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
from urllib.parse import urlsplit

os.environ["GEVENT_RESOLVER"] = "ares"  # read when gevent makes its hub; its servers are resolv.conf's

import gevent.socket
import gevent.ssl
from gevent.pool import Pool

from benchmarks.peers.task import Task

_TIMEOUT = 10.0


class Client:
    """Fetches URLs. A session is resumed by the next connection to the same name."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._context = gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if task.cafile:
            self._context.load_verify_locations(task.cafile)
        self._sessions: dict[str, object] = {}

    def fetch(self, url: str) -> None:
        """Store what is at ``url``; a failure leaves it out."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            body = self._body(url)
            if body is not None:
                self._task.store(url, body)

    def _body(self, url: str) -> bytes | None:
        parts = urlsplit(url)
        name = parts.hostname or ""
        secure = parts.scheme == "https"
        raw = gevent.socket.create_connection((name, parts.port or (443 if secure else 80)), _TIMEOUT)
        with contextlib.ExitStack() as stack:
            stack.callback(raw.close)
            connection = raw
            if secure:
                session = self._sessions.get(name)
                connection = self._context.wrap_socket(raw, server_hostname=name, session=session)
                stack.callback(connection.close)
            request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            response = http.client.HTTPResponse(connection)
            response.begin()
            body = response.read()
            if secure:
                self._sessions[name] = connection.session
            return body if response.status == 200 else None


def main() -> None:
    task = Task.given()
    client = Client(task)
    pool = Pool(task.connections)
    for url in task.urls:
        pool.spawn(client.fetch, url)
    pool.join()
    task.say()


if __name__ == "__main__":
    main()
