"""The test server: real server processes, clients of raw sockets."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import resource
import select
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from checker import Truth, check
from harness import DevServer, slow_but

from downloader.errors import ConfigError
from downloader.testserver.settings import Settings

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
TCP_CLOSE = 7  # the state of a socket, from linux/tcp_states.h

SCRIPT = """
import sys
from downloader.testserver import server
from downloader.testserver.settings import Settings
def announce(line):
    sys.stdout.write(line + chr(10))
    sys.stdout.flush()
{before}
server.serve(Settings(**{settings!r}), announce)
announce("returned")
"""


class Server:
    """A server process that has announced itself."""

    def __init__(self, process: subprocess.Popen[str], tls: bool) -> None:
        assert process.stdout is not None
        self.process = process
        scheme = "https" if tls else "http"
        line = process.stdout.readline()
        match = re.fullmatch(rf"listening {scheme}://127\.0\.0\.1:(\d+)\n", line)
        assert match, line
        self.port = int(match[1])
        self.ca = ""
        if tls:
            self.ca = process.stdout.readline().removeprefix("ca ").rstrip("\n")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def get(self, target: str, method: str = "GET") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, target)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, target: str) -> dict[str, object]:
        status, body = self.get(target)
        assert status == 200, body
        return json.loads(body)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait()


# asyncio of Python 3.10 does not close a TLS transport whose handshake failed, and warns about it.
WARNINGS = ["-W", "error", *(["-W", "ignore::ResourceWarning"] if sys.version_info < (3, 11) else [])]


@contextmanager
def spawned(before: str = "", **settings: object) -> Iterator[subprocess.Popen[str]]:
    script = SCRIPT.format(before=before, settings=settings)
    with ExitStack() as made:
        # A server that has to be killed leaves nothing behind, either.
        directory = made.enter_context(tempfile.TemporaryDirectory())
        process = made.enter_context(
            subprocess.Popen(
                [sys.executable, *WARNINGS, "-c", script],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": directory},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def serving(before: str = "", **settings: object) -> Iterator[Server]:
    """Run a server. One that the test has not ended must end with exit code 0 and no output."""
    with spawned(before, **settings) as process:
        server = Server(process, bool(settings.get("tls")))
        yield server
        if process.poll() is None:
            assert server.stop() == 0
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read() == "returned\n"
            assert process.stderr.read() == ""


def expected(index: int, least: int, most: int) -> tuple[str, bytes]:
    """Return name and bytes of a file by the published recipe, not by the server's code."""
    name = f"file-{index:010d}"
    drawn = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    size = least + drawn % (most - least + 1)
    blocks = [hashlib.shake_128(f"{name}:{k}".encode()).digest(MIB) for k in range(size // MIB + 1)]
    return name, b"".join(blocks)[:size]


def request(target: str, *fields: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {target} HTTP/{version}", "Host: 127.0.0.1", *fields, "", ""]
    return "\r\n".join(lines).encode()


def get(index: int, *fields: str, version: str = "1.1") -> bytes:
    return request(f"/get/file-{index:010d}", *fields, version=version)


class Answers:
    """Read responses from a connection, one after another."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.data = b""
        self.fields: dict[str, str] = {}

    def more(self) -> bool:
        part = self.connection.recv(1 << 14)
        self.data += part
        return bool(part)

    def next(self, head_only: bool = False) -> tuple[int, bytes]:
        while b"\r\n\r\n" not in self.data:
            assert self.more(), self.data
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.fields = {}
        for line in lines:
            name, _, value = line.partition(": ")
            self.fields[name.lower()] = value
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        length = 0 if head_only else int(self.fields["content-length"])
        parts = [self.data]
        have = len(self.data)
        while have < length:
            part = self.connection.recv(1 << 18)
            assert part, "the body is cut off"
            parts.append(part)
            have += len(part)
        body = b"".join(parts)
        self.data = body[length:]
        return int(status), body[:length]

    def at_end(self) -> bool:
        return not self.data and not self.more()


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    with serving(files=2503) as server:
        yield server


# The listing and the files


@pytest.mark.parametrize("key", ["NextMarker", "NextFile"])
def test_pages_lead_to_every_name_once(key: str) -> None:
    with serving(files=2503, page=500, next_file_alias=key == "NextFile") as server:
        names: list[str] = []
        target = "/list"
        pages = 0
        while target:
            page = server.json(target)
            names += page["FileNames"]  # type: ignore[arg-type]
            marker = page.pop(key, None)
            assert page.keys() == {"FileNames"}
            pages += 1
            target = f"/list?next-marker={quote(str(marker), safe='')}" if marker else ""
        assert names == [f"file-{index:010d}" for index in range(2503)]
        assert pages == 6


def test_a_last_page_that_is_full_has_no_marker() -> None:
    with serving(files=20, page=10) as server:
        first = server.json("/list")
        marker = quote(str(first["NextMarker"]), safe="")
        assert server.json(f"/list?next-marker={marker}").keys() == {"FileNames"}


def test_no_files_is_one_empty_page() -> None:
    with serving(files=0) as server:
        assert server.json("/list") == {"FileNames": []}


def test_marker_must_be_encoded(plain: Server) -> None:
    marker = str(plain.json("/list")["NextMarker"])
    assert set("&%+=") <= set(marker)
    encoded = quote(marker, safe="")
    assert plain.get(f"/list?next-marker={encoded}")[0] == 200
    assert plain.get(f"/list?other=1&next-marker={encoded}")[0] == 200
    for left in "&%+":
        assert plain.get(f"/list?next-marker={quote(marker, safe=left)}")[0] == 400, left
    assert plain.get(f"/list?next-marker={quote(encoded, safe='')}")[0] == 400


@pytest.mark.parametrize(
    "marker",
    ["", "x", "from=0&page%00+", "from=1500&page%01+", "from=3000&page%03+", "from=1000&page%02+"],
)
def test_an_unknown_marker_is_refused(plain: Server, marker: str) -> None:
    assert plain.get(f"/list?next-marker={quote(marker, safe='')}")[0] == 400


@pytest.mark.parametrize(
    ("least", "most", "count"),
    [(0, 0, 2), (100, 100, 50), (0, 300, 50), (MIB - 2, MIB + 2, 8), (0, 4 * MIB, 6)],
)
def test_contents_follow_the_recipe(least: int, most: int, count: int) -> None:
    with serving(files=count, size=(least, most)) as server, server.connect() as connection:
        answers = Answers(connection)
        sizes = set()
        for index in range(count):
            name, body = expected(index, least, most)
            connection.sendall(request(f"/get/{name}"))
            assert answers.next() == (200, body), name
            sizes.add(len(body))
        assert len(sizes) > 1 or least == most


def test_listing_of_a_billion_files() -> None:
    with serving(files=10**9) as server:
        name, body = expected(10**9 - 1, 100, 100)
        assert server.get(f"/get/{name}") == (200, body)
        assert server.get("/get/file-1000000000")[0] == 404
        marker = quote("from=999999000&page%999999+", safe="")
        last = server.json(f"/list?next-marker={marker}")
        assert last == {"FileNames": [f"file-{i:010d}" for i in range(10**9 - 1000, 10**9)]}


# The protocol


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/get/file-0000002502", "GET", 200),
        ("/get/file%2D0000%300250%32", "GET", 200),
        ("http://elsewhere:1/get/file-0000002502", "GET", 200),
        ("/get/file-0000000001?x=1", "GET", 200),
        ("/get/file-0000002503", "GET", 404),
        ("/get/file-00000000001", "GET", 404),
        ("/get/file-000000000", "GET", 404),
        ("/get/file-000000000x", "GET", 404),
        ("/get/file-+000000001", "GET", 404),
        ("/get/", "GET", 404),
        ("/get/%ff%zz", "GET", 404),
        ("/", "GET", 404),
        ("/lists", "GET", 404),
        ("/get/file-0000000001", "POST", 405),
        ("/get/file-0000000001", "PUT", 405),
        ("/get/file-0000000001", "DELETE", 405),
        ("/list", "OPTIONS", 405),
    ],
)
def test_statuses(plain: Server, target: str, method: str, status: int) -> None:
    with plain.connect() as connection:
        answers = Answers(connection)
        body = b"GET / HTTP/1.1\r\n\r\n"
        field = [f"Content-Length: {len(body)}"] if method != "GET" else []
        connection.sendall(request(target, *field, method=method) + (body if field else b""))
        assert answers.next()[0] == status
        assert ("allow" in answers.fields) is (status == 405)
        # After any status the connection is kept, and a request body is not taken for a request.
        connection.sendall(get(7))
        assert answers.next() == (200, expected(7, 100, 100)[1])


def test_head_response_has_no_body(plain: Server) -> None:
    targets = ["/get/file-0000000003", "/list", "/get/x", "/stats"]
    with plain.connect() as connection:
        answers = Answers(connection)
        for target in targets:
            connection.sendall(request(target))
            status, body = answers.next()
            fields = answers.fields
            connection.sendall(request(target, method="HEAD") + get(4))
            assert answers.next(head_only=True) == (status, b"")
            assert answers.fields == fields or target == "/stats"
            assert body
            assert answers.next() == (200, expected(4, 100, 100)[1])


def test_head_of_a_large_file_sends_none_of_it() -> None:
    with serving(files=2, size=(3 * MIB, 3 * MIB)) as server, server.connect() as connection:
        connection.sendall(request("/get/file-0000000001", method="HEAD") + request("/get/x"))
        answers = Answers(connection)
        assert answers.next(head_only=True) == (200, b"")
        assert answers.fields["content-length"] == str(3 * MIB)
        assert answers.next()[0] == 404


def test_pipelined_responses_come_in_order(plain: Server) -> None:
    with plain.connect() as connection:
        indexes = [(index * 37) % 2503 for index in range(800)]
        connection.sendall(b"".join(get(index) for index in indexes))
        answers = Answers(connection)
        for index in indexes:
            assert answers.next() == (200, expected(index, 100, 100)[1])


def test_many_requests_take_few_writes() -> None:
    count = (
        "from downloader.testserver import protocol\n"
        "import atexit, asyncio.selector_events as events\n"
        "writes = []\n"
        "write = events._SelectorSocketTransport.write\n"
        "def counted(self, data):\n"
        "    writes.append(len(data))\n"
        "    return write(self, data)\n"
        "events._SelectorSocketTransport.write = counted\n"
        "atexit.register(lambda: announce(str(len(writes))))\n"
    )
    with serving(count, files=100) as server:
        with server.connect() as connection:
            connection.sendall(b"".join(get(index) for index in range(100)))
            answers = Answers(connection)
            for index in range(100):
                assert answers.next() == (200, expected(index, 100, 100)[1])
        assert server.stop() == 0
        assert server.process.stdout is not None
        lines = server.process.stdout.read().split()
        # One segment or a few; never one per request.
        assert int(lines[-1]) <= 5


def test_delays_are_random_overlap_and_keep_the_order() -> None:
    with serving(files=100, delay=(0.0, 0.4)) as server, server.connect() as connection:
        sent = [b"".join((get(index), request("/list"))) for index in range(100)]
        begin = time.monotonic()
        connection.sendall(b"".join(sent))
        answers = Answers(connection)
        listing = json.dumps({"FileNames": [f"file-{i:010d}" for i in range(100)]}).encode()
        for index in range(100):
            assert answers.next() == (200, expected(index, 100, 100)[1])
            assert answers.next() == (200, listing)
        # One after another they would take 20 s; the longest of a hundred is rarely short.
        assert 0.2 < time.monotonic() - begin < 10


def test_delay_applies_to_files_only() -> None:
    with serving(files=10, delay=(1.5, 1.5)) as server, ExitStack() as made:
        slow, quick = (made.enter_context(server.connect()) for _ in range(2))
        begin = time.monotonic()
        slow.sendall(get(1))
        quick.sendall(request("/list") + request("/stats"))
        answers = Answers(quick)
        assert answers.next()[0] == 200
        assert answers.next()[0] == 200
        assert select.select([slow], [], [], 0) == ([], [], [])
        assert Answers(slow).next() == (200, expected(1, 100, 100)[1])
        assert time.monotonic() - begin >= 1.5


def test_requests_split_byte_by_byte(plain: Server) -> None:
    with plain.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = get(11) + request("/list", "X-Long: " + "x" * 50) + get(12)
        for position in range(len(data)):
            connection.sendall(data[position : position + 1])
            # A round trip: the server has read it, alone, before the next one is sent.
            if position % 8 == 0:
                plain.get("/stats")
        answers = Answers(connection)
        assert answers.next() == (200, expected(11, 100, 100)[1])
        assert answers.next()[0] == 200
        assert answers.next() == (200, expected(12, 100, 100)[1])


@pytest.mark.parametrize(
    ("fields", "version", "said", "kept"),
    [
        ([], "1.1", None, True),
        (["Connection: close"], "1.1", "close", False),
        ([], "1.0", "close", False),
        (["Connection: keep-alive"], "1.0", "keep-alive", True),
        (["Connection: Upgrade", "Upgrade: h2c"], "1.1", None, True),
    ],
)
def test_connection_is_kept_after_each_status(
    plain: Server, fields: list[str], version: str, said: str | None, kept: bool
) -> None:
    with plain.connect() as connection:
        # A second request follows at once: after a close it gets no response, and it is no error, either.
        connection.sendall(get(5, *fields, version=version) + get(6))
        answers = Answers(connection)
        assert answers.next() == (200, expected(5, 100, 100)[1])
        assert answers.fields.get("connection") == said
        if kept:
            assert answers.next() == (200, expected(6, 100, 100)[1])
        else:
            assert answers.at_end()


MALFORMED = [
    b"nonsense\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /list HTTP/9.9\r\n\r\n",
    b"GET /list HTTP/1.1\r\nHost\r\n\r\n",
    b"GET /list HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    b"GET /list HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET /" + b"x" * 10000 + b" HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.mark.parametrize("data", MALFORMED)
def test_malformed_request_ends_the_connection_after_earlier_responses(plain: Server, data: bytes) -> None:
    with plain.connect() as connection:
        # More follows than the server reads at once: closing with unread data would reset the connection,
        # and responses could be lost.
        connection.sendall(get(1) + data + get(2) * 20_000)
        answers = Answers(connection)
        assert answers.next() == (200, expected(1, 100, 100)[1])
        assert answers.next()[0] == 400
        assert answers.fields["connection"] == "close"
        assert answers.at_end()


def test_half_closed_client_gets_its_responses() -> None:
    with (
        serving(files=10, size=(3 * MIB, 3 * MIB), delay=(0.05, 0.1)) as server,
        ExitStack() as made,
    ):
        connection = made.enter_context(server.connect())
        connection.sendall(get(1) + get(2))
        connection.shutdown(socket.SHUT_WR)
        answers = Answers(connection)
        assert answers.next() == (200, expected(1, 3 * MIB, 3 * MIB)[1])
        assert answers.next() == (200, expected(2, 3 * MIB, 3 * MIB)[1])
        assert answers.at_end()
        begin = time.monotonic()
        while server.json("/stats")["connections_open"] != 1:
            assert time.monotonic() - begin < 1.5, "it lingers for nothing"


# Bounds


def resident(server: Server) -> int:
    return psutil.Process(server.process.pid).memory_info().rss


def test_a_slow_reader_of_a_large_file_takes_no_memory() -> None:
    size = 128 * MIB
    with serving(files=1, size=(size, size)) as server:
        before = resident(server)
        digest = hashlib.sha256()
        with server.connect() as connection:
            connection.sendall(get(0))
            # A server without back-pressure makes a block in each iteration of its event loop.
            for _ in range(250):
                stats = server.json("/stats")
            assert stats["bytes"] < 32 * MIB
            assert resident(server) - before < 32 * MIB
            head, _, part = connection.recv(1 << 16).partition(b"\r\n\r\n")
            assert b"Content-Length: %d" % size in head
            left = size
            while part:
                digest.update(part)
                left -= len(part)
                part = connection.recv(min(left, 1 << 18)) if left else b""
        assert left == 0
        assert digest.digest() == hashlib.sha256(expected(0, size, size)[1]).digest()
        assert resident(server) - before < 32 * MIB


@pytest.mark.parametrize("size", [100, 100_000])
def test_client_that_never_reads_is_not_read_for_ever(size: int) -> None:
    with serving(files=10, size=(size, size)) as server:
        before = resident(server)
        with server.connect() as connection:
            connection.setblocking(False)
            data = get(1) * 1000
            sent = 0
            for _ in range(600):
                try:
                    while sent < 200 * MIB:
                        sent += connection.send(data)
                except BlockingIOError:
                    pass
                server.get("/stats")
            assert sent < 100 * MIB
            assert resident(server) - before < 32 * MIB


@pytest.mark.parametrize("tls", [False, True])
def test_reading_continues_once_the_client_reads(tls: bool) -> None:
    with serving(files=10, size=(20_000, 20_000), tls=tls) as server, ExitStack() as made:
        connections = []
        for _ in range(2):
            connection = made.enter_context(server.connect())
            if tls:
                context = ssl.create_default_context(cafile=server.ca)
                connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
                made.enter_context(connection)
            connections.append(connection)
        answers, other = map(Answers, connections)
        # Far more responses than all buffers hold: the server has stopped reading before the second half is
        # sent, and must continue later. Other connections are not affected.
        for _ in range(2):
            answers.connection.sendall(get(1) * 1000)
            for _ in range(50):
                other.connection.sendall(request("/stats"))
                _, body = other.next()
        assert json.loads(body)["gets"] < 2000
        body = expected(1, 20_000, 20_000)[1]
        for _ in range(2000):
            assert answers.next() == (200, body)


def test_open_files_are_raised_to_the_hard_limit() -> None:
    # The child starts with a low limit, as a shell sets it.
    low = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, HARD))\n"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with serving(low.replace("HARD", str(hard)), files=10) as server, ExitStack() as made:
        for _ in range(200):
            connection = made.enter_context(server.connect())
            connection.sendall(get(1))
            assert Answers(connection).next()[0] == 200
        assert server.json("/stats")["connections_open"] == 201


# The process


def test_tls_is_verified_with_the_announced_ca() -> None:
    with serving(files=4, tls=True, size=(0, 3 * MIB)) as server:
        context = ssl.create_default_context(cafile=server.ca)
        for name in ("127.0.0.1", "::1", "localhost"):
            with context.wrap_socket(server.connect(), server_hostname=name) as connection:
                connection.sendall(get(0) + get(1) + request("/list") + get(2, "Connection: close"))
                answers = Answers(connection)
                assert answers.next() == (200, expected(0, 0, 3 * MIB)[1])
                assert answers.next() == (200, expected(1, 0, 3 * MIB)[1])
                assert answers.next()[0] == 200
                assert answers.next() == (200, expected(2, 0, 3 * MIB)[1])
                assert answers.at_end()
        with server.connect() as raw, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(raw, server_hostname="127.0.0.1")


@pytest.mark.parametrize("lowered", [False, True])
def test_tls_below_1_2_is_refused(lowered: bool) -> None:
    # OpenSSL's security level refuses it too: removed on both sides, so that only the server's minimum is
    # left. With that lowered as well the connection succeeds, so the test detects a missing minimum.
    minimum = "context.minimum_version = server.ssl.TLSVersion.TLSv1_1" if lowered else "pass"
    before = (
        "import warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "certify = server._certify\n"
        "def insecurely(*given):\n"
        "    context, path = certify(*given)\n"
        "    context.set_ciphers('ALL:@SECLEVEL=0')\n"
        f"    {minimum}\n"
        "    return context, path\n"
        "server._certify = insecurely\n"
    )
    with serving(before, tls=True) as server, server.connect() as raw:
        context = ssl.create_default_context(cafile=server.ca)
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match=r"TLSv1_1"):
            context.minimum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match=r"TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        if lowered:
            with context.wrap_socket(raw, server_hostname="localhost") as connection:
                assert connection.version() == "TLSv1.1"
        else:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(raw, server_hostname="localhost")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_and_leaves_nothing(number: signal.Signals, workers: int) -> None:
    with serving(tls=True, workers=workers) as server:
        directory = Path(server.ca).parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(server.ca).stat().st_mode) == 0o600
        assert os.listdir(directory) == ["ca.pem"]
        children = psutil.Process(server.process.pid).children()
        assert len(children) == (0 if workers == 1 else workers)
        context = ssl.create_default_context(cafile=server.ca)
        with context.wrap_socket(server.connect(), server_hostname="localhost") as connection:
            connection.sendall(get(1))
            assert Answers(connection).next()[0] == 200
            if number == signal.SIGINT:  # a terminal sends it to the whole group
                for child in children:
                    child.send_signal(number)
            assert server.stop(number) == 0  # an open connection does not delay the exit
        assert not directory.exists()
        assert not any(child.is_running() for child in children)  # reaped, not only dead
        assert server.process.stdout is not None
        assert server.process.stderr is not None
        assert server.process.stdout.read() == "returned\n"
        assert server.process.stderr.read() == ""


@pytest.mark.parametrize("prctl", [True, False])
def test_workers_die_with_their_parent(prctl: bool) -> None:
    before = "" if prctl else "server._die_with_parent = lambda parent: False"
    with serving(before, workers=2) as server, ExitStack() as made:
        children = psutil.Process(server.process.pid).children()
        assert len(children) == 2
        descriptors = [os.pidfd_open(child.pid) for child in children]
        for descriptor in descriptors:
            made.callback(os.close, descriptor)
        if prctl:  # a stopped process would not notice an end of file
            for child in children:
                child.suspend()
        assert select.select(descriptors, [], [], 0)[0] == []
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        for descriptor in descriptors:
            assert select.select([descriptor], [], [], 20)[0] == [descriptor]
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_a_worker_that_dies_ends_the_server() -> None:
    with serving(workers=2) as server:
        children = psutil.Process(server.process.pid).children()
        children[0].kill()
        assert server.process.wait() == 1
        assert server.process.stderr is not None
        assert "a process of the file server died" in server.process.stderr.read()
        assert not any(child.is_running() for child in children)


def test_worker_start_failure_is_reported() -> None:
    before = "def broken(*_): raise OSError('broken')\nserver.Site = broken"
    with spawned(before, workers=2) as process:
        _, errors = process.communicate()
        assert process.returncode == 1
        assert "could not start" in errors


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("other", [1, 2])
def test_a_port_in_use_is_a_configuration_error(workers: int, other: int) -> None:
    with serving(workers=other) as server, spawned(port=server.port, workers=workers) as second:
        out, errors = second.communicate()
        assert second.returncode == 1
        assert out == ""
        assert f"ConfigError: cannot listen on 127.0.0.1 port {server.port}: Address" in errors


def test_port_can_be_reused_at_once() -> None:
    with serving() as server:
        with server.connect() as connection:
            connection.sendall(get(1, "Connection: close"))
            assert Answers(connection).next()[0] == 200
        port = server.port
    with serving(port=port) as server:
        assert server.port == port


@pytest.mark.parametrize("workers", [1, 2])
def test_stats(workers: int) -> None:
    with serving(files=10, workers=workers) as server, ExitStack() as made:
        connections = [made.enter_context(server.connect()) for _ in range(40)]
        for connection in connections:
            connection.sendall(
                get(1)
                + get(99)
                + request("/list")
                + request("/x")
                + request("/stats")
                + request("/stats?x", method="HEAD")
                + request("/get/file-0000000002", method="HEAD")
            )
            answers = Answers(connection)
            assert [answers.next()[0] for _ in range(5)] == [200, 404, 200, 404, 200]
            answers.next(head_only=True)
            answers.next(head_only=True)
        assert server.json("/stats") == {
            "requests": 200,
            "gets": 120,
            "lists": 40,
            "connections_opened": 41,
            "connections_open": 41,
            "connections_peak": 41,
            "bytes": 4000,
            "drops": 0,
            "closes": 0,
        }
        for connection in connections:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
        connections[0].close()
        while True:  # the server closes before it counts
            stats = server.json("/stats")
            if stats["connections_open"] == 1:
                break
        assert stats["connections_peak"] in (41, 42)  # 42 where the first /stats was still open
        assert stats["connections_opened"] >= 42


def test_workers_share_the_connections() -> None:
    with serving(workers=2) as server, ExitStack() as made:
        children = psutil.Process(server.process.pid).children()
        for _ in range(64):
            connection = made.enter_context(server.connect())
            connection.sendall(get(1))
            assert Answers(connection).next()[0] == 200
        counts = [
            sum(1 for c in child.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED)
            for child in children
        ]
        assert sum(counts) == 64
        assert min(counts) > 0


# Connections that end: at their limit, or dropped


def secure(server: Server) -> socket.socket:
    """Open a connection to ``server``, over TLS where it has a CA."""
    connection = server.connect()
    if not server.ca:
        return connection
    context = ssl.create_default_context(cafile=server.ca)
    return context.wrap_socket(connection, server_hostname="127.0.0.1", suppress_ragged_eofs=False)


@pytest.mark.parametrize("tls", [False, True])
def test_connection_limit_is_announced_and_kept(tls: bool) -> None:
    with serving(files=1000, close_after=7, tls=tls) as server:
        served, connections, index = 0, 0, 0
        while index < 40:
            with secure(server) as connection:
                connections += 1
                # A pipeline longer than the limit: requests behind it get no response.
                connection.sendall(b"".join(get(i) for i in range(index, index + 20)))
                answers = Answers(connection)
                for number in range(1, 8):
                    assert answers.next() == (200, expected(index, 100, 100)[1])
                    assert answers.fields.get("connection") == ("close" if number == 7 else None)
                    index, served = index + 1, served + 1
                assert answers.at_end()
        with secure(server) as connection:
            connection.sendall(request("/stats"))
            stats = json.loads(Answers(connection).next()[1])
        assert stats["closes"] == connections == 6
        assert (stats["gets"], stats["drops"]) == (served, 0)


@pytest.mark.parametrize("tls", [False, True])
def test_no_response_is_lost_to_a_reset_at_the_limit(tls: bool) -> None:
    """The client sends all its requests, more than the server reads at once, before it reads anything."""
    size = 50_000
    with serving(files=1000, size=(size, size), close_after=20, tls=tls) as server, ExitStack() as made:
        connections = [made.enter_context(secure(server)) for _ in range(4)]
        for connection in connections:
            connection.sendall(b"".join(get(i) for i in range(1000)))
        with secure(server) as other:  # its response reaches the limit, or the clients are waited for
            other.sendall(request("/stats"))
            Answers(other).next()
        for connection in connections:
            answers = Answers(connection)
            for index in range(20):
                assert answers.next() == (200, expected(index, size, size)[1])
            assert answers.fields["connection"] == "close"
            assert answers.at_end()


@pytest.mark.parametrize("tls", [False, True])
def test_client_sending_past_the_limit(tls: bool) -> None:
    """The server reads from it for a limited time."""
    with serving(files=10, close_after=1, tls=tls) as server, secure(server) as connection:
        connection.sendall(get(1))
        assert select.select([connection], [], [], 20)[0]
        for _ in range(200):
            connection.sendall(get(2))
        answers = Answers(connection)
        assert answers.next() == (200, expected(1, 100, 100)[1])
        assert answers.at_end()
        connection.settimeout(20)
        data = get(2) * 100
        begin = time.monotonic()
        with suppress(ConnectionError, ssl.SSLError):
            while time.monotonic() - begin < 20:
                connection.sendall(data)
        assert time.monotonic() - begin < 15


def test_limit_counts_every_response_and_client_close_is_no_limit() -> None:
    with serving(files=10, close_after=3) as server:
        with server.connect() as connection:
            connection.sendall(request("/list") + request("/x") + request("/stats") + get(1))
            answers = Answers(connection)
            assert [answers.next()[0] for _ in range(3)] == [200, 404, 200]
            assert answers.at_end()
        with server.connect() as connection:  # a client that sends the header at the limit: no limit
            connection.sendall(get(1) + get(2) + get(3, "Connection: close") + get(4))
            answers = Answers(connection)
            assert [answers.next()[0] for _ in range(3)] == [200, 200, 200]
            assert answers.fields["connection"] == "close"
            assert answers.at_end()
        assert server.json("/stats")["closes"] == 1


def test_limit_with_delays_waits_for_pending_responses() -> None:
    with serving(files=100, close_after=10, delay=(0.0, 0.2)) as server, server.connect() as connection:
        connection.sendall(b"".join(get(i) for i in range(10)))
        answers = Answers(connection)
        for index in range(10):
            connection.sendall(get(50))  # arrives while those at the limit are pending
            assert answers.next() == (200, expected(index, 100, 100)[1])
        assert answers.at_end()


class Ends:
    """How the pipelines of a client ended: complete responses, and what was left of the next one."""

    def __init__(self) -> None:
        self.whole = 0
        self.kinds: set[str] = set()

    def pipeline(self, connection: socket.socket, wanted: list[int], size: int) -> int:
        """Request ``wanted`` at once; return how many complete responses came. What came must be right,
        byte by byte."""
        data = b""
        connection.sendall(b"".join(get(i) for i in wanted))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
        right = b"".join(head % size + expected(i, size, size)[1] for i in wanted)
        one = len(right) // len(wanted)
        try:
            while len(data) < len(right):
                part = connection.recv(1 << 16)
                if not part:
                    break
                data += part
        except (ssl.SSLEOFError, ConnectionResetError):
            pass  # the ssl module does not distinguish them
        # The socket does: after a reset it is closed.
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        end = "reset" if state == TCP_CLOSE else "end"
        assert right.startswith(data)
        whole, rest = divmod(len(data), one)
        self.whole += whole
        if whole < len(wanted):
            where = "nothing" if not rest else "head" if rest < one - size else "body"
            self.kinds.add(f"{end} after {where}")
        return whole


@pytest.mark.parametrize(
    ("tls", "size"),
    slow_but(
        [(False, 1), (True, 300), (False, 2 * MIB), (True, 2 * MIB)], (False, True), (1, 300, 2 * MIB)
    ),
)
def test_drops_occur_at_every_position_and_sent_bytes_are_right(tls: bool, size: int) -> None:
    files = 40 if size > MIB else 200
    with serving(files=files, size=(size, size), drop_rate=0.3, seed=1, tls=tls) as server:
        ends, done, dropped = Ends(), 0, 0
        while done < files:
            with secure(server) as connection:
                wanted = list(range(done, min(done + 8, files)))
                whole = ends.pipeline(connection, wanted, size)
                done += whole
                dropped += whole < len(wanted)
        with secure(server) as connection:
            connection.sendall(request("/stats") * 50 + request("/list") * 50)
            answers = Answers(connection)
            stats = json.loads(answers.next()[1])
            assert [answers.next()[0] for _ in range(99)] == [200] * 99
        assert stats["drops"] == dropped
        assert 0.15 < dropped / (dropped + files) < 0.5
        # In a body of one byte the only place is before it.
        assert {"end after nothing", "end after head", "end after body"} - ends.kinds <= (
            set() if size > 1 else {"end after body"}
        )
        assert any(kind.startswith("reset") for kind in ends.kinds)


def test_all_responses_dropped_and_none_dropped() -> None:
    with serving(files=50, drop_rate=1.0) as server:
        for index in range(50):
            with server.connect() as connection:
                assert Ends().pipeline(connection, [index], 100) == 0
        stats = server.json("/stats")
        assert (stats["drops"], stats["gets"], stats["requests"]) == (50, 50, 50)
        assert stats["bytes"] < 5000
    with serving(files=50, drop_rate=0.0, seed=5) as server:
        assert [server.get(f"/get/file-{i:010d}")[0] for i in range(50)] == [200] * 50


def test_same_seed_draws_the_same_drops() -> None:
    def run(seed: int) -> list[int]:
        with serving(files=100, drop_rate=0.2, seed=seed) as server:
            counts = []
            for _ in range(30):
                with server.connect() as connection:
                    counts.append(Ends().pipeline(connection, list(range(10)), 100))
            return counts

    assert run(7) == run(7) != run(8)


def test_drops_with_delays_and_a_head_alone() -> None:
    """Responses pending behind a dropped one are dropped with it; of a HEAD response only the header can be
    cut."""
    with serving(files=50, drop_rate=1.0, delay=(0.0, 0.05), seed=3) as server:
        for index in range(20):
            with server.connect() as connection:
                connection.sendall(get(index) * 5)
                data = b""
                with suppress(ConnectionResetError):
                    while part := connection.recv(1 << 14):
                        data += part
                assert data.count(b"HTTP/1.1") <= 1
                assert len(data) < 200
            with server.connect() as connection:
                connection.sendall(request(f"/get/file-{index:010d}", method="HEAD"))
                with suppress(ConnectionResetError):
                    assert b"\r\n\r\n" not in connection.recv(1 << 14)
        while server.json("/stats")["connections_open"] != 1:
            pass


def test_a_limit_and_drops_together_with_workers() -> None:
    with serving(files=400, drop_rate=0.05, close_after=50, workers=2, seed=1) as server:
        ends, done, connections = Ends(), 0, 0
        while done < 400:
            with server.connect() as connection:
                connections += 1
                # The response at the limit has one more header line: request it alone, below the limit.
                done += ends.pipeline(connection, list(range(done, min(done + 49, 400))), 100)
        stats = server.json("/stats")
        assert stats["drops"] >= 5
        assert stats["closes"] == 0


@pytest.mark.parametrize("tls", [False, True])
def test_download_despite_limits_and_drops(
    tls: bool,
    dev_server: Callable[..., DevServer],
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """The options as the command line has them."""
    server = dev_server(files=2000, size="100-1000", drop_rate=0.01, seed=1, close_after=10, tls=tls)
    options = ["--cacert", server.ca] if tls else []
    done = run_downloader(
        server.url, "-o", tmp_path / "d", "--backoff", "10ms", "--retries", 20, "--json", *options
    )
    assert done.returncode == 0, done.stderr
    assert check(tmp_path / "d", Truth(2000, 100, 1000)).stored == 2000
    stats = server.stats()
    assert stats["drops"] > 5
    assert stats["closes"] > 50


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--drop-rate", "1.5"], "drop_rate: 1.5 is not a probability"),
        (["--drop-rate", "often"], "--drop-rate"),
        (["--drop-rate", "nan"], "drop_rate: nan is not a probability"),
        (["--close-after", "0"], "--close-after"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_invalid_command_lines(
    options: list[str], says: str, run_downloader: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = run_downloader("serve", *options, timeout=20)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.splitlines()) == 1


# Other


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": -1},
        {"files": 10**9 + 1},
        {"size": (2, 1)},
        {"size": (-1, 1)},
        {"page": 0},
        {"port": 65536},
        {"delay": (-0.1, 0.1)},
        {"delay": (0.2, 0.1)},
        {"delay": (0.0, float("inf"))},
        {"delay": (float("nan"), 1.0)},
        {"workers": 0},
        {"drop_rate": -0.1},
        {"drop_rate": 1.1},
        {"drop_rate": float("nan")},
        {"seed": -1},
        {"close_after": -1},
    ],
)
def test_invalid_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Settings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("module", ["", ".settings", ".content", ".drops"])
def test_importing_the_server_imports_no_ssl(module: str) -> None:
    script = (
        f"import sys, downloader.testserver{module}\n"
        "found = {'ssl', 'asyncio', 'gevent', 'httptools', 'trustme'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(found)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
