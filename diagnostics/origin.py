"""Run a TLS server that sends each response after the delay in its URL, for thousands of requests at once.

Its process (``main``, with FOLDER) writes a certificate to FOLDER (``ca.pem``), prints its port, and exits
when its standard input is closed. It serves ``GET /{run}/{delay}/{index}``. For each line that it reads it
prints as JSON, by run, how many requests came, and for how long how many of them waited at once, and why
it refused handshakes. It is a separate process, so that it neither blocks the process under check nor is
blocked by it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from diagnostics import certificate
from diagnostics.errors import ProbeError
from diagnostics.output_errors import error_in
from downloader.process import isolation
from downloader.process.tls_defaults import server_context
from downloader.process.watching import STALL_TIMEOUT, end, watched
from downloader.testserver.loopback import loopback

if TYPE_CHECKING:
    import h11

__all__ = ["Origin", "main"]

_REQUEST = re.compile(r"/([0-9a-f]{8}-[0-9]+/[^?]*)")  # begins with the `{run}` of the agent
_MAX_RUNS = 1000
_MAX_SPANS = 200  # of a run, that are recorded


class _Run:
    """The counts of one run.

    ``levels[n]``: seconds in which ``n`` requests waited; ``spans``: for the first of them ``[index, came,
    left]``, by the monotonic clock that all processes of the machine share.
    """

    def __init__(self) -> None:
        self.requests = self._now = 0
        self.levels: list[float] = [0.0]
        self.spans: list[list[Any]] = []
        self._since = 0.0

    def change(self, by: int) -> None:
        """Change the number of waiting requests by ``by``."""
        now = asyncio.get_running_loop().time()
        if self._now:
            self.levels[self._now] += now - self._since
        self._since = now
        self._now += by
        self.requests += max(0, by)
        if self._now == len(self.levels):
            self.levels.append(0.0)

    def as_json(self) -> dict[str, Any]:
        """Return the counts as they go into the JSON."""
        return {
            "requests": self.requests,
            "peak": len(self.levels) - 1,
            "levels": self.levels,
            "spans": self.spans,
        }

    def came(self, index: str) -> Callable[[], None]:
        """Count a request, with the index in its URL; return what counts that it has been responded to."""
        self.change(1)
        clock = asyncio.get_running_loop().time
        span: list[Any] = [0, clock(), None]
        if len(self.spans) < _MAX_SPANS and re.fullmatch("[0-9]{1,5}", index):
            span[0] = int(index)
            self.spans.append(span)

        def left() -> None:
            span[2] = clock()
            self.change(-1)

        return left


class _Connection(asyncio.Protocol):
    """A server connection that responds in order: a pipelined request waits for the one before it."""

    def __init__(self, counts: dict[str, _Run]) -> None:
        self._counts = counts
        self._request: h11.Request | None = None
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Imported only in the server's process: in one that calls `check()`, `h11` may be a module of the
        # user's.
        import h11

        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._h11 = h11
        self._parser = h11.Connection(h11.SERVER)

    def data_received(self, data: bytes) -> None:
        self._parser.receive_data(data)
        self._next()

    def _next(self) -> None:
        """Begin the next request, if it is complete."""
        while not self._busy and not self._transport.is_closing():
            try:
                event = self._parser.next_event()
            except self._h11.RemoteProtocolError:
                self._transport.close()
                return
            if event is self._h11.NEED_DATA or event is self._h11.PAUSED:
                return
            if isinstance(event, self._h11.Request):
                self._request = event
            elif isinstance(event, self._h11.EndOfMessage) and self._request is not None:
                self._begin(self._request.target.decode("latin-1"))

    def _begin(self, target: str) -> None:
        # A client may put a path in front, and something behind.
        found = _REQUEST.search(target)
        run, _, rest = (found.group(1) if found else target.strip("/")).partition("/")
        self._busy = True
        try:
            delay = min(max(float(rest.partition("/")[0] or 0), 0.0), 60.0)
        except ValueError:
            delay = 0.0
        count = self._counts.setdefault(run, _Run())
        while len(self._counts) > _MAX_RUNS:
            del self._counts[next(iter(self._counts))]
        left = count.came(rest.partition("/")[2])
        asyncio.get_running_loop().call_later(delay, self._due, left)

    def _due(self, left: Callable[[], None]) -> None:
        left()
        self._busy = False
        if self._transport.is_closing():
            return
        self._respond(b"x" * 100)
        if self._parser.our_state is self._h11.MUST_CLOSE:
            self._transport.close()
        else:
            self._parser.start_next_cycle()
            self._next()

    def _respond(self, body: bytes) -> None:
        assert self._request is not None
        length = ("Content-Length", str(len(body)))
        head = self._h11.Response(status_code=200, reason="OK", headers=[length])
        events: list[Any] = [head, self._h11.Data(body), self._h11.EndOfMessage()]
        if self._request.method == b"HEAD":
            del events[1]
        self._transport.write(b"".join(self._parser.send(each) or b"" for each in events))


def _telling(refused: set[str]) -> type[ssl.SSLObject]:
    """Return the class of connections that add to ``refused`` why a handshake was: asyncio tells nobody."""

    class Told(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except ssl.SSLError as error:
                if error.reason:
                    refused.add(error.reason)
                raise

    return Told


def _load(context: ssl.SSLContext, file: Path) -> None:
    context.load_cert_chain(file)
    file.unlink()


async def _serve(folder: Path) -> None:
    write_rsa = certificate.write(folder)
    context = server_context()
    refused: set[str] = set()
    context.sslobject_class = _telling(refused)
    _load(context, folder / certificate.SERVER)
    counts: dict[str, _Run] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(counts), loopback(), 0, ssl=context, backlog=4096)
    host, port = server.sockets[0].getsockname()[:2]
    # Where IPv4 is missing, hardly any system says that localhost is ::1.
    sys.stdout.write(f"{'[::1]' if host == '::1' else 'localhost'}:{port}\n")
    sys.stdout.flush()
    # The program is being started meanwhile; who is quicker waits to be accepted.
    write_rsa()
    _load(context, folder / certificate.RSA)
    queries = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(queries), sys.stdin)
    while await queries.readline():
        runs = {run: each.as_json() for run, each in counts.items()}
        sys.stdout.write(json.dumps({"runs": runs, "refused": sorted(refused)}) + "\n")
        sys.stdout.flush()
    server.close()
    shutil.rmtree(folder, ignore_errors=True)  # whoever made it was killed: else it ends this process


class Origin:
    """The probe's TLS server, as a context manager.

    ``url`` has the placeholders that the agent fills in; ``ca`` is a file. Entering raises ProbeError when
    the server does not start.
    """

    def __enter__(self) -> Origin:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="diagnostics-")))
            if os.geteuid() == 0:
                self._folder.chmod(0o711)  # lets a worker that dropped its privileges read the certificate
            argv, env = isolation.child("diagnostics.origin:main", str(self._folder))
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
            stack.callback(self._end)
            assert self._process.stdout is not None
            with watched(self._process, STALL_TIMEOUT):
                line = self._process.stdout.readline()
            if not line:
                assert self._process.stderr is not None
                text = error_in(self._process.stderr.read().decode(errors="replace"))
                raise ProbeError(f"the TLS server of the probe did not start: {text}")
            self._authority = line.decode("ascii").strip()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _end(self) -> None:
        process = self._process
        end(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    @property
    def url(self) -> str:
        """Return the URL with the placeholders ``{run}``, ``{delay}`` and ``{index}``."""
        return f"https://{self._authority}/{{run}}/{{delay}}/{{index}}"

    @property
    def ca(self) -> str:
        """Return the path of the CA certificate that clients must trust."""
        return str(self._folder / certificate.CA)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return the counts by run.

        ``requests``: how many came; ``peak``: the maximum that waited at once; ``levels``: for each number
        of requests, the seconds in which that many waited; ``spans``: see ``_Run``. Raises ProbeError when
        the server is gone.
        """
        found: dict[str, dict[str, Any]] = self._asked()["runs"]
        return found

    def refused(self) -> list[str]:
        """Return why the server refused handshakes, in OpenSSL's words; raise ProbeError as ``counts``."""
        found: list[str] = self._asked()["refused"]
        return found

    def _asked(self) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(b"counts\n")
            stdin.flush()
            with watched(self._process, STALL_TIMEOUT):
                found: dict[str, Any] = json.loads(stdout.readline())
        except (OSError, ValueError) as error:
            raise ProbeError(f"the TLS server of the probe is gone: {error}") from None
        return found


def main() -> None:
    """Run the server; the entry point of its process."""
    asyncio.run(_serve(Path(sys.argv[1])))
