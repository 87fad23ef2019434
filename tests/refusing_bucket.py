"""Stand in front of a bucket, and refuse some of what it is asked."""

from __future__ import annotations

import http.client
import http.server
from urllib.parse import urlsplit

__all__ = ["Refusing"]


class Refusing(http.server.BaseHTTPRequestHandler):
    """Pass requests on to the server ``behind``, or refuse them with 403; a subclass says which."""

    protocol_version = "HTTP/1.1"
    behind = ""

    def refuse(self) -> None:
        """Answer with 403."""
        body = b"" if self.command == "HEAD" else b"<Error><Code>AccessDenied</Code></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def pass_on(self) -> None:
        """Answer with what the server answers."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        there = urlsplit(self.behind)
        connection = http.client.HTTPConnection(there.hostname or "", there.port)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
