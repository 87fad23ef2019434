"""Run misbehaving HTTP(S) servers from a few declarative lines, on raw sockets and threads.

An *answer* (a response) is a list of steps, carried out in order on the connection::

    [b"HTTP/1.1 200 OK\\r\\nContent-Length: 10\\r\\n\\r\\nabc", Pause(0.1), RESET]

bytes are sent as they are; after the last step the connection serves the next request. An answer can be a
function of the request that returns one, or ``Nth(a, b, …)``: the first request to that path gets ``a``,
the second ``b``, all later ones the last.

    with Server(files={"a": ok(b"hello"), "b": [RESET]}) as server:
        ...  # downloader server.url -o DEST
        assert server.count("/get/a") == 1

``files`` are listed on one page under ``/list`` and served under ``/get/NAME``; ``routes`` are paths (with
the query where it matters) of their own. All requests received are recorded in ``server.requests``.
"""

from servers.answers import (
    CLOSE,
    CLOSE_WITH,
    CUT,
    HANG,
    RESET,
    Answer,
    Forever,
    Nth,
    Pause,
    Step,
    Until,
    listing,
    ok,
    redirect,
    status,
)
from servers.command import Result, download
from servers.mix import ASKING, CODES, LASTING, ODD, PASSING, Faults, body_of
from servers.raw import Request, Server
from servers.tls import Certificates, Tls
from servers.tunnel import Tunnel
from servers.unordered import Unordered
from servers.unused import closed_port

__all__ = [
    "ASKING",
    "CLOSE",
    "CLOSE_WITH",
    "CODES",
    "CUT",
    "HANG",
    "LASTING",
    "ODD",
    "PASSING",
    "RESET",
    "Answer",
    "Certificates",
    "Faults",
    "Forever",
    "Nth",
    "Pause",
    "Request",
    "Result",
    "Server",
    "Step",
    "Tls",
    "Tunnel",
    "Unordered",
    "Until",
    "body_of",
    "closed_port",
    "download",
    "listing",
    "ok",
    "redirect",
    "status",
]
