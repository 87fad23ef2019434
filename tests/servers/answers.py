"""Steps and responses, as values; ``servers.raw`` carries them out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servers.raw import Request


@dataclass(frozen=True)
class Pause:
    """Send nothing for that many seconds (or until the server is stopped)."""

    seconds: float


@dataclass(frozen=True)
class Until:
    """Send nothing until ``event`` is set."""

    event: Event


@dataclass(frozen=True)
class Forever:
    """Send ``chunk`` again and again, every ``every`` seconds, until the client leaves."""

    chunk: bytes
    every: float = 0.0


class End(Enum):
    """How a connection ends: with a FIN, with a RST, or not until the client leaves."""

    CLOSE = "close"
    CLOSE_WITH = "close with"  # what was sent before leaves together with the end, in one segment
    CUT = "cut"  # close; over TLS without close_notify
    RESET = "reset"
    HANG = "hang"


CLOSE, CLOSE_WITH, CUT, RESET, HANG = End

Step = bytes | Pause | Until | Forever | End


class Nth:
    """One response after another; the last one is repeated."""

    def __init__(self, *answers: Sequence[Step]) -> None:
        self.answers = answers

    def at(self, number: int) -> Sequence[Step]:
        """Return the response to request ``number``, counted from 0."""
        return self.answers[min(number, len(self.answers) - 1)]


Answer = Sequence[Step] | Callable[["Request"], Sequence[Step]] | Nth


def ok(body: bytes = b"hello", *headers: str) -> list[Step]:
    """Return a 200 with its length."""
    return status(200, *headers, body=body)


def status(code: int, *headers: str, body: bytes = b"") -> list[Step]:
    """Return a response with status ``code``, ``headers`` and a body of the stated length."""
    lines = [f"HTTP/1.1 {code} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return ["\r\n".join(lines).encode("latin-1") + body]


def redirect(location: str, code: int = 302) -> list[Step]:
    """Return a redirect to ``location``."""
    return status(code, f"Location: {location}")


def listing(names: Sequence[object], marker: str = "", key: str = "NextMarker") -> list[Step]:
    """Return a page of the listing."""
    page: dict[str, object] = {"FileNames": list(names)}
    if marker:
        page[key] = marker
    return ok(json.dumps(page).encode(), "Content-Type: application/json")
