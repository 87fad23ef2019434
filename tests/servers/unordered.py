"""Run a server that answers the requests of a connection in another order than they came in.

It handles each request on its own, as many in flight as the client sends, and writes a response when it is
ready: what a server does that has a task for each request and no queue behind them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from random import Random

from servers.answers import listing

__all__ = ["Unordered"]


class Unordered:
    """A server of files ``names``. ``respond(name)`` returns a whole response.

    ``order``: "completion" of the requests, each of which takes a random time; "swap": of the requests that
    arrive together, the third and fourth of each ten change places; "kept". ``after``: so many requests are
    answered in order first. ``limit``: a connection is closed after so many. ``asked``: number of requests
    for files, those behind a close not counted.
    """

    def __init__(
        self,
        names: Sequence[str],
        respond: Callable[[str], bytes],
        order: str,
        after: int = 0,
        limit: int | None = None,
    ) -> None:
        self.names, self.respond, self.order, self.after = names, respond, order, after
        self.limit, self.asked = limit, 0
        self.random = Random(7)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Unordered:
        self._thread.start()
        serve = self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=200)
        self._server = asyncio.run_coroutine_threadsafe(serve, self._loop).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class _Connection(asyncio.Protocol):
    def __init__(self, server: Unordered) -> None:
        self._server, self._left = server, server.limit
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        server = self._server
        *heads, self._received = (self._received + data).split(b"\r\n\r\n")
        names = [head.split(b" ")[1].decode().rpartition("/")[2] for head in heads]
        if names[:1] == ["list"]:
            self._transport.write(b"".join(listing(server.names)))  # type: ignore[arg-type]
            return
        if self._left is not None:
            names = names[: self._left]
            self._left -= len(names)
        server.asked += len(names)
        ordered = server.order == "kept" or server.asked <= server.after
        if not ordered and server.order == "completion":
            loop = asyncio.get_running_loop()
            for name in names:
                loop.call_later(server.random.expovariate(500), self._answer, name)
            return
        for first in range(0 if ordered else 2, 0 if ordered else len(names) - 1, 10):
            names[first : first + 2] = reversed(names[first : first + 2])
        for name in names:
            self._answer(name, last=self._left == 0 and name is names[-1])

    def _answer(self, name: str, *, last: bool = False) -> None:
        if not self._transport.is_closing():
            response = self._server.respond(name)
            self._transport.write(
                response.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) if last else response
            )
            if last:
                self._transport.close()
