"""The test server's listing, files and HTTP: real server processes, clients of raw sockets."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import wait
from urllib.parse import quote

import pytest
from testserver_process import MIB, Answers, Server, expected, get, request, serving


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
        assert wait([slow], 0) == []
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
