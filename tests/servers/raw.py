"""Run the server: a listener, a thread for each connection, and a record of the requests."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import BinaryIO
from urllib.parse import quote

from servers.answers import Answer, End, Forever, Nth, Pause, Step, Until, listing, status

# The first byte of the kernel's struct tcp_info, and its value while neither side has closed its end.
_TCP_ESTABLISHED = 1


def _open_there(sock: socket.socket) -> bool:
    """Return whether the client has not closed its end; the kernel knows this before a reader sees it."""
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_ESTABLISHED
    except OSError:
        return True  # its handshake has just begun


@dataclass(frozen=True)
class Request:
    """A request as received. ``target`` is as sent, ``host`` is the address that was connected to."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    connection: int
    at: float
    host: str

    def header(self, name: str) -> str | None:
        """Return the header field ``name``, None when it was not sent; several values joined by ``|``."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return "|".join(values) if values else None


class Server:
    """See the package. ``connected``: steps carried out on the nth connection before anything is read
    (before the handshake, with ``tls``); an End among them ends it there. ``record``: whether requests are
    kept. ``most``: connections beyond so many at one time are closed at once. ``open_peak``: the most
    connections that the client had open at one time."""

    def __init__(
        self,
        routes: Mapping[str, Answer] | None = None,
        *,
        files: Mapping[str, Answer] | None = None,
        default: Answer | None = None,
        tls: ssl.SSLContext | None = None,
        connected: Sequence[Step] | Nth = (),
        host: str = "127.0.0.1",
        port: int = 0,
        record: bool = True,
        most: int = 1000,
    ) -> None:
        self.routes: dict[str, Answer] = dict(routes or {})
        if files is not None:
            self.routes.setdefault("/list", listing(list(files)))
            self.routes.update({f"/get/{quote(name, safe='')}": files[name] for name in files})
        self._default = default if default is not None else status(404)
        self._tls = tls
        self._connected = connected
        self.requests: list[Request] = []
        self._record = record
        self._most = most
        self.connections = 0
        self.resumed = 0  # of these, resumed TLS sessions
        self.open_peak = 0
        self.errors: list[str] = []
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=512)
        self.host = host
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        """Return ``http(s)://host:port``, with the host spelt as ``localhost`` never is."""
        host = {"0.0.0.0": "127.0.0.1", "::1": "[::1]"}.get(self.host, self.host)
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    @property
    def open(self) -> int:
        """Return how many connections it has at present."""
        return len(self._sockets)

    def count(self, target: str = "") -> int:
        """Return how many requests began with ``target``."""
        return sum(request.target.startswith(target) for request in list(self.requests))

    def seen(self, target: str) -> list[Request]:
        """Return the requests for exactly ``target``."""
        return [request for request in list(self.requests) if request.target == target]

    def refuse(self) -> None:
        """Refuse connections from now on."""
        # shutdown wakes the thread in accept(); close alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Server:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.refuse()
        with self._lock:
            open_now = list(self._sockets)
        for sock in open_now:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        assert not self.errors, self.errors

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        if len(self._threads) > 1000:
            self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                number = self.connections
                self.connections += 1
                if len(self._sockets) >= self._most:
                    sock.close()
                    continue
                self._sockets.add(sock)
                self.open_peak = max(self.open_peak, sum(map(_open_there, self._sockets)))
            self._spawn(self._serve, sock, number)

    def _serve(self, sock: socket.socket, number: int) -> None:
        raw = sock
        try:
            # Nothing blocks for ever, not even when the test does not close the client.
            sock.settimeout(30)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            steps = self._connected.at(number) if isinstance(self._connected, Nth) else self._connected
            if self._carry_out(sock, steps):
                return
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self.resumed += bool(sock.session_reused)
                # wrap_socket detaches: the socket to shut down is the new one.
                with self._lock:
                    self._sockets.discard(raw)
                    self._sockets.add(sock)
            stream = sock.makefile("rb")
            while (request := self._read(stream, sock, number)) is not None:
                if self._carry_out(sock, self._answer(request)):
                    return
        except TimeoutError as error:
            self.errors.append(f"connection {number}: {error!r}")  # no client should wait that long
        except OSError:
            pass  # the client left, or the server was stopped
        except Exception as error:
            self.errors.append(repr(error))
        finally:
            with self._lock:
                self._sockets -= {raw, sock}
            sock.close()

    def _read(self, stream: BinaryIO, sock: socket.socket, number: int) -> Request | None:
        first = stream.readline()
        if not first.strip():
            return None
        method, target, _ = first.decode("latin-1").split(" ", 2)
        headers = []
        while (line := stream.readline().decode("latin-1")) not in ("\r\n", ""):
            name, _, value = line.partition(":")
            headers.append((name, value.strip(" \t\r\n")))
        request = Request(method, target, tuple(headers), number, monotonic(), sock.getsockname()[0])
        if self._record:
            with self._lock:
                self.requests.append(request)
        return request

    def _answer(self, request: Request) -> Sequence[Step]:
        target = request.target
        path = target if target in self.routes else target.partition("?")[0]
        answer = self.routes.get(path, self._default)
        if isinstance(answer, Nth):
            with self._lock:
                number = self._counts.get(path, 0)
                self._counts[path] = number + 1
            return answer.at(number)
        return answer(request) if callable(answer) else answer

    def _carry_out(self, sock: socket.socket, steps: Sequence[Step]) -> bool:
        """Carry out a step; return whether the connection is to end."""
        if End.CLOSE_WITH in steps:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        for step in steps:
            if isinstance(step, bytes):
                sock.sendall(step)
            elif isinstance(step, Pause):
                if self._stopped.wait(step.seconds):
                    return True
            elif isinstance(step, Until):
                if not step.event.wait(60):
                    raise TimeoutError("what was waited for has not happened")
            elif isinstance(step, Forever):
                while not self._stopped.wait(step.every):
                    sock.sendall(step.chunk)
                return True
            else:
                self._end(sock, step)
                return True
        return False

    def _end(self, sock: socket.socket, how: End) -> None:
        if how is End.HANG:
            while not self._stopped.is_set() and sock.recv(65536):
                pass
        elif how is End.RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how is End.CLOSE and isinstance(sock, ssl.SSLSocket):
            sock.settimeout(2)
            with contextlib.suppress(OSError):
                sock.unwrap()
