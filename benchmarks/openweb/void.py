"""Listen so that connections are never established, and never refused either.

The kernel drops the first packet of a connection while the queue of those that nobody has accepted is full.
So the queue is made as short as it can be and filled by connections of our own.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

__all__ = ["void"]

_WAIT: Final = 0.3  # on loopback a connection that is established is so at once
_MOST: Final = 16


@contextlib.contextmanager
def void(address: str, port: int) -> Iterator[None]:
    """Keep the queue of ``address`` and ``port`` full while the context is open. Raise RuntimeError where
    connections are established all the same."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(_MOST):
            client = stack.enter_context(socket.socket())
            client.settimeout(_WAIT)
            try:
                client.connect((address, port))
            except TimeoutError:
                break
        else:
            raise RuntimeError(f"{address}:{port} still accepts connections after {_MOST}")
        yield
