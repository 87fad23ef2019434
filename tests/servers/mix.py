"""Make servers misbehave for a share of the requests: each kind for one in N, under load.

faults = Faults(one_in=100, seed=7)
with Server(default=faults) as server:
    ...
    faults.given["reset"]  # how often
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

from servers.answers import CLOSE, CUT, HANG, RESET, Forever, Step, ok, redirect, status
from servers.raw import Request

Fault = Callable[[bytes], Sequence[Step]]


def _head(*lines: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode()


def _half(body: bytes) -> bytes:
    whole = ok(body)[0]
    assert isinstance(whole, bytes)
    return whole[: -(len(body) + 1) // 2]


_CHUNKED = _head("Transfer-Encoding: chunked")

# Faults that another attempt overcomes, with either client.
PASSING: Mapping[str, Fault] = {
    "reset": lambda body: [RESET],
    "reset in the body": lambda body: [_half(body), RESET],
    "closed": lambda body: [CLOSE],
    "closed behind": lambda body: [*ok(body), CLOSE],
    "cut": lambda body: [_half(body), CUT],
    "silent": lambda body: [HANG],
    "silent in the body": lambda body: [_half(body), HANG],
    "drip": lambda body: [_head("Content-Length: 99999"), Forever(b"x", 0.1)],
    "chunks stop": lambda body: [_CHUNKED, b"5\r\nhello\r\n", CLOSE],
    "500": lambda body: status(500),
}
# What the pipelined client hands over, so that it soon leaves an origin to the requests client.
ODD: Mapping[str, Fault] = {
    "length nonsense": lambda body: [_head("Content-Length: abc"), body, CLOSE],
    "two lengths": lambda body: [_head("Content-Length: 5", "Content-Length: 6"), body, CLOSE],
    "chunk nonsense": lambda body: [_CHUNKED, b"zz\r\nhello\r\n0\r\n\r\n"],
    "redirected": lambda body: redirect("?again"),
    "interim": lambda body: [b"HTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\n", *ok(body)],
}
# What changes how an origin is used from then on: a requested pause, or cookies to be kept.
ASKING: Mapping[str, Fault] = {
    "503": lambda body: status(503, "Retry-After: 0"),
    "cookie": lambda body: ok(body, "Set-Cookie: a=b"),
}
# Faults that are final.
LASTING: Mapping[str, Fault] = {
    "404": lambda body: status(404, body=b"gone"),
    "206": lambda body: status(206, "Content-Range: bytes 0-4/9", body=b"hello"),
}
CODES = {"404": "http-404", "206": "unexpected-status"}


def body_of(name: str) -> bytes:
    """Return the content of the file ``name``; every name has another length."""
    return name.encode() * (1 + sum(name.encode()) % 40)


class Faults:
    """A response: the file that the target's last segment names, or one in ``one_in`` each of ``kinds``.

    ``given`` counts them; ``ended`` records which names got a final one: they get it each time.
    """

    def __init__(self, one_in: int, seed: int, kinds: Mapping[str, Fault] | None = None) -> None:
        self._kinds = tuple((PASSING if kinds is None else kinds).items())
        self._one_in = one_in
        self._random = Random(seed)
        self._lock = threading.Lock()
        self.given: Counter[str] = Counter()
        self.ended: dict[str, str] = {}

    def __call__(self, request: Request) -> Sequence[Step]:
        name, _, again = request.target.rpartition("/")[2].partition("?")
        if again:
            return ok(body_of(name))
        with self._lock:
            drawn = self._random.randrange(self._one_in)
            if name in self.ended:
                return LASTING[self.ended[name]](b"")
            if drawn >= len(self._kinds):
                return ok(body_of(name))
            kind, fault = self._kinds[drawn]
            self.given[kind] += 1
            if kind in CODES:
                self.ended[name] = kind
        return fault(body_of(name))
