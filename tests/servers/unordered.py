"""Run a server that answers the requests of a connection in another order than they came in.

It handles each request on its own, as many in flight as the client sends, and writes a response when it is
ready: what a server does that has a task for each request and no queue behind them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from servers.answers import listing

__all__ = ["OTHER", "Unordered"]

OTHER = "other-0"
"""The name of a file that nobody asks for."""

_LARGE = 100_000  # bytes


class Unordered:
    """A server of files ``names``. ``respond(name)`` returns a whole response.

    ``order``: "completion" of the requests, each of which takes a random time. Of the requests that arrive
    together: "swap": the third and fourth of each ten change places; "reverse"; "last": all are answered
    with the file of the last one, "page": with one that none of them is for. "large last": large files are
    sent later than the others. Or "kept". ``after``: so many requests are answered in order first.
    ``share``: on 1 of so many connections only. ``limit``: a connection is closed after so many. ``asked``:
    number of requests for files, those behind a close not counted; ``counts``: of each. ``spoil`` returns
    what is sent instead of the responses to requests that arrive together, or a close, which is b"".
    """

    def __init__(
        self,
        names: Sequence[str],
        respond: Callable[[str], bytes],
        order: str,
        after: int = 0,
        limit: int | None = None,
        share: int = 1,
        spoil: Callable[[list[bytes]], list[bytes]] | None = None,
    ) -> None:
        self.names, self.respond, self.order, self.after = names, respond, order, after
        self.limit, self.asked = limit, 0
        self.counts: Counter[str] = Counter()
        self.spoil = spoil
        self.share, self.connections = share, 0
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


def _swapped(names: list[str]) -> list[str]:
    for first in range(2, len(names) - 1, 10):
        names[first : first + 2] = reversed(names[first : first + 2])
    return names


_DISORDERS: dict[str, Callable[[list[str]], list[str]]] = {
    "swap": _swapped,
    "reverse": lambda names: names[::-1],
    "last": lambda names: names[-1:] * len(names),
    "page": lambda names: [OTHER] * len(names),
}


class _Connection(asyncio.Protocol):
    def __init__(self, server: Unordered) -> None:
        self._server, self._left = server, server.limit
        server.connections += 1
        self._kept = server.order == "kept" or server.connections % server.share != 0
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
        server.counts.update(names)
        ordered = self._kept or server.asked <= server.after or len(names) == 1
        if not ordered and server.order == "completion":
            loop = asyncio.get_running_loop()
            for name in names:
                loop.call_later(server.random.expovariate(500), self._answer, name)
            return
        if server.order == "large last":
            for name in names:
                if len(server.respond(name)) > _LARGE:
                    asyncio.get_running_loop().call_later(0.02, self._answer, name)
                else:
                    self._answer(name)
            return
        if not ordered and server.spoil is not None:
            sent = server.spoil([server.respond(name) for name in names])
            self._transport.write(b"".join(sent))
            if b"" in sent:
                self._transport.close()
            return
        if not ordered:
            names = _DISORDERS[server.order](names)
        for number, name in enumerate(names, 1):
            self._answer(name, last=self._left == 0 and number == len(names))

    def _answer(self, name: str, *, last: bool = False) -> None:
        if not self._transport.is_closing():
            response = self._server.respond(name)
            self._transport.write(
                response.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) if last else response
            )
            if last:
                self._transport.close()
