"""A port at which nobody listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_port() -> Iterator[str]:
    """Yield the URL of a port that refuses connections until the end.

    That of a server that has ended may be given to another test's server meanwhile.
    """
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
