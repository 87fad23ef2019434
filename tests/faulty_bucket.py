"""Stand in front of a bucket that is down for a while, or answers in a way that no store should."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator

from refusing_bucket import Refusing

__all__ = ["Fault", "Front", "down", "in_front"]

Fault = Callable[["Front"], bool]
"""Is called with each request, and returns whether it has dealt with it."""


class Front(Refusing):
    """Pass requests on, unless ``fault`` deals with them. All are in ``asked``, method and path."""

    fault: Fault
    asked: list[str]

    def _answer(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        if not type(self).fault(self):
            self.pass_on()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def say(self, status: int, code: str) -> bool:
        """Answer with an error of S3; return True."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return True

    def drop(self) -> bool:
        """End the connection without an answer; return True."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return True


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients give up requests here."""


@contextlib.contextmanager
def in_front(behind: str, fault: Fault) -> Iterator[tuple[str, list[str]]]:
    """Run a server before that of ``behind``; yield its URL, and what it was asked."""
    asked: list[str] = []
    handler = type("Front", (Front,), {"behind": behind, "fault": staticmethod(fault), "asked": asked})
    with _Server(("127.0.0.1", 0), handler) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{front.server_port}", asked
        front.shutdown()


def down(seconds: float, answer: Fault, begins: Fault) -> Fault:
    """Return a fault: ``answer`` for so many seconds, from the first request on for which ``begins``."""
    until: list[float] = []

    def fault(front: Front) -> bool:
        if not until and begins(front):
            until.append(time.monotonic() + seconds)
        return bool(until) and time.monotonic() < until[0] and answer(front)

    return fault
