"""Run a proxy that only does CONNECT: it forwards bytes both ways, or refuses."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any


class Tunnel:
    """The proxy. ``answer``: its response to each CONNECT; with a 2xx it becomes a tunnel, with anything
    else, b"" too, the connection ends. ``breaks``: after that many bytes of responses the first tunnel is
    cut. ``to``: the server that tunnels lead to, whatever is requested. ``tls``: the proxy itself is spoken
    to over TLS. ``heads`` are the CONNECT requests received."""

    def __init__(
        self,
        answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n",
        *,
        breaks: int = 0,
        to: tuple[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.heads: list[bytes] = []
        self._answer = answer
        self._breaks = breaks
        self._to = to
        self._tls = tls
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Tunnel:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *list(self._open)):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.add(client)
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
                self._open.add(client)
        with client, contextlib.suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                more = client.recv(4096)
                if not more:
                    return
                head += more
            self.heads.append(head)
            client.sendall(self._answer)
            if not re.search(rb"^HTTP/1.[01] 2", self._answer, re.MULTILINE):
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection(self._to or (host.strip("[]"), int(port))) as server:
                self._open.add(server)
                self._carry(client, server, breaks=self._breaks if len(self.heads) == 1 else 0)

    def _carry(self, client: socket.socket, server: socket.socket, breaks: int) -> None:
        # In one thread: a TLS socket must not be used by two at a time.
        left = breaks
        while True:
            decrypted = isinstance(client, ssl.SSLSocket) and client.pending()
            ready: Sequence[Any] = [client] if decrypted else wait([client, server])
            for source in ready:
                data = source.recv(65536)
                if not data:
                    return
                if source is client:
                    server.sendall(data)
                elif breaks and left <= len(data):
                    client.sendall(data[:left])
                    return
                else:
                    left -= len(data)
                    client.sendall(data)
