"""Compare the pipelined client with the requests client, and test what only the pipelined client does."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from servers import (
    CLOSE,
    CLOSE_WITH,
    RESET,
    Answer,
    Certificates,
    Forever,
    Nth,
    Pause,
    Request,
    Server,
    Step,
    download,
    ok,
    redirect,
    status,
)

LANES = ("auto", "requests")
QUICK = ("--retries", "1", "--backoff", "50ms", "--read-timeout", "2s")


def files(count: int) -> dict[str, Answer]:
    return {f"file {n}.bin": ok(b"x%d" % n) for n in range(count)}


def test_both_clients_send_the_same_request(tmp_path: Path) -> None:
    """Request line and headers, in their order and spelling, credentials included."""
    auth = tmp_path / "auth"
    auth.write_text("user:päss\n")
    auth.chmod(0o600)
    options = ["--auth-file", str(auth), "--user-agent", "me/1"]
    given = (
        "X-One:  1",
        "accept: text/*",
        "Cookie: a=1",
        "X-Two: 2",
        "accept: x/y",
        "x-two: 3",
        "cookie: b=2",
    )
    for line in given:
        options += ["-H", line]
    with Server(files=files(20) | {"ü%2F?#": ok()}) as server:
        seen = {}
        for lane in LANES:
            server.requests.clear()
            result = download(server.url, tmp_path / lane, *QUICK, *options, "--lane", lane)
            assert result.report["stored"] == 21
            assert result.report["lanes"] == {"wire": 0, "requests": 0} | {
                "wire" if lane == "auto" else "requests": 21
            }
            seen[lane] = {
                request.target: request.headers
                for request in server.requests
                if request.target.startswith("/get/")
            }
    assert seen["auto"] == seen["requests"]
    assert len(seen["auto"]) == 21
    headers = dict(seen["auto"]["/get/file%200.bin"])
    assert base64.b64decode(headers["Authorization"].split()[1]).startswith(b"user:p")
    assert (headers["User-Agent"], headers["X-One"], headers["Cookie"]) == ("me/1", "1", "a=1; b=2")
    # As many lines as were given; none of ours beside the first.
    lines = [(name.lower(), value) for name, value in seen["auto"]["/get/file%200.bin"]]
    assert [value for name, value in lines if name == "accept"] == ["text/*", "x/y"]
    assert [value for name, value in lines if name == "x-two"] == ["2", "3"]


@pytest.mark.parametrize("lane", LANES)
def test_status_203_is_stored(lane: str, tmp_path: Path) -> None:
    """203, Non-Authoritative Information: a success."""
    changed: dict[str, Answer] = {f"/get/f{n}": status(203, body=b"x%d" % n) for n in (1, 2)}
    changed["/list"] = status(203, body=b'{"FileNames": ["f1", "f2"]}')
    with Server(changed) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--lane", lane)
    assert (result.exit, result.files) == (0, {"f1": b"x1", "f2": b"x2"})
    assert result.report["lanes"]["wire" if lane == "auto" else "requests"] == 2


@pytest.mark.parametrize("lane", LANES)
def test_blanks_around_values_are_no_part_of_them(lane: str, tmp_path: Path) -> None:
    fields = ('ETag:\t "x" \t', "Last-Modified: yesterday\t", "Content-Type:text/plain ")
    answers: dict[str, Answer] = {
        "a": ok(b"a", *fields),
        "b": ok(b"b", "X-Robots-Tag: noai \t"),
        "c": ok(b"c", "Content-MD5: " + base64.b64encode(b"x" * 16).decode() + "\t "),
        "d": Nth(status(503, "Retry-After: 0 \t"), ok(b"d")),
    }
    manifest = tmp_path / "m.jsonl"
    with Server(files=answers) as server:
        options = ("--respect", "x-robots-tag", "--checksums", "all", "--manifest", str(manifest))
        result = download(server.url, tmp_path / "d", *QUICK, *options, "--lane", lane)
    assert result.codes == {"b": "opted-out", "c": "checksum-mismatch"}
    row = next(row for row in map(json.loads, manifest.read_text().splitlines()) if row["name"] == "a")
    assert (row["etag"], row["last_modified"], row["content_type"]) == ('"x"', "yesterday", "text/plain")


@pytest.mark.parametrize("lane", LANES)
def test_fields_without_a_valid_name_do_not_matter(lane: str, tmp_path: Path) -> None:
    """But where one may say how long the body is, its end is not known."""
    odd = ("X-Powered-By : PHP", "X-\u00e9: a", "X Powered: a", ": a", "X-Tab\t: a")
    answers: dict[str, Answer] = {f"f{n}": ok(b"whole", field) for n, field in enumerate(odd)}
    answers["gone"] = status(404, odd[0])
    answers["chunked"] = [
        b"HTTP/1.1 200 OK\r\nX-A : b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n"
    ]
    for n, field in enumerate(
        (b"Content-Length : 3", b"Content Length: 3", b"Transfer-Encoding : chunked")
    ):
        answers[f"bad{n}"] = [b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\nwhole", CLOSE]
    with Server(files=answers) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--lane", lane)
        assert len(server.seen("/get/gone")) <= 2  # one for each client
    assert result.codes == {"gone": "http-404"} | {f"bad{n}": "protocol" for n in range(3)}
    assert set(result.files.values()) == {b"whole"}
    assert len(result.files) == len(odd) + 1


@pytest.mark.parametrize("lane", LANES)
def test_framing_that_curl_takes(lane: str, tmp_path: Path) -> None:
    """Chunks stated by an application and its server; other versions; line feeds alone. With another coding
    beside the chunks, the body would not be the file."""
    ok_line, chunked = b"HTTP/1.1 200 OK\r\n", b"Transfer-Encoding: chunked\r\n"
    body = b"\r\n5\r\nwhole\r\n0\r\n\r\n"
    whole: dict[str, Answer] = {
        "twice": [ok_line + chunked + chunked + body],
        "thrice": [ok_line + chunked + chunked.lower() + chunked.upper() + body],
        "listed": [ok_line + b"Transfer-Encoding: chunked, Chunked\r\n" + body],
        "two": [b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nwhole"],
        "two-chunks": [b"HTTP/2.0 200 OK\r\n" + chunked + body, CLOSE],
        "short-two": [b"HTTP/2 200 OK\r\nContent-Length: 5\r\n\r\nwhole"],
        "two-blanks": [b"HTTP/1.1  200 OK\r\nContent-Length: 5\r\n\r\nwhole"],
        "identity": [ok_line + b"Transfer-Encoding: identity, chunked\r\n" + body],
        "identity-line": [ok_line + b"Transfer-Encoding: Identity\r\n" + chunked + body],
        "line-feeds": [ok_line + chunked + body.replace(b"\r", b"")],
        "feeds-of-data": [ok_line + chunked + body.replace(b"whole\r", b"whole")],
    }
    gzip = b"Transfer-Encoding: gzip\r\n"
    fields = (gzip + chunked, chunked + gzip, gzip.lower() + chunked, chunked + gzip.lower())
    wrong = {f"wrong{n}": [ok_line + each + body, CLOSE] for n, each in enumerate(fields)}
    for n, end in enumerate((b"\r0\r\n", b"0\r\n", b"!\n0\r\n", b"\r\r\n0\r\n")):
        wrong[f"end{n}"] = [ok_line + chunked + b"\r\n5\r\nwhole" + end + b"\r\n", CLOSE]
    # On a host of its own each: a few that are handed over leave all of a host to the requests client.
    with ExitStack() as running:
        servers = [running.enter_context(Server({f"/{n}": each})) for n, each in (whole | wrong).items()]
        urls = [f"{server.url}/{n}" for server, n in zip(servers, whole | wrong, strict=True)]
        result = download("-", tmp_path / "d", *QUICK, "--lane", lane, stdin="\n".join(urls))
    assert result.files == dict.fromkeys(whole, b"whole")
    assert result.codes == dict.fromkeys(wrong, "protocol")


@pytest.mark.parametrize("lane", LANES)
def test_cookies_are_those_of_the_host_whatever_login_a_url_has(lane: str, tmp_path: Path) -> None:
    def there(request: Request) -> list[Step]:
        return ok(b"in") if request.header("Cookie") == "s=1" else status(403)

    routes: dict[str, Answer] = {"/there": there}
    with Server(routes) as server:
        host = server.url.removeprefix("http://")
        for name, field in (("a", "Set-Cookie: s=1; Path=/"), ("b", "Set-Cookie: s=1; Domain=127.0.0.1")):
            server.routes[f"/{name}"] = status(302, f"Location: {server.url}/there", field)
            server.routes[f"/{name}-relative"] = status(302, "Location: /there", field)
        urls = [
            f"http://{login}{host}/{name}{how}"
            for name in ("a", "b")
            for how in ("", "-relative")
            for login in ("u:p@", "u@")
        ]
        for number, url in enumerate(urls):
            result = download("-", tmp_path / f"d{number}", *QUICK, "--lane", lane, stdin=url)
            assert (result.exit, list(result.files.values())) == (0, [b"in"]), url


def test_a_host_that_cannot_be_requested_is_its_files_failure(tmp_path: Path) -> None:
    """Whatever part of us, urllib3 or the resolver refuses it: the first file, and one among others."""
    hosts = (
        f"{'a' * 64}.test",
        "[fe80::1%eth0]",
        "a..test",
        "[::ffff:127.0.0.1%1]",
        "~!$&'()*+,;=",
        "-",
        "_.",
    )
    with Server(default=ok(b"whole")) as server:
        good = [f"{server.url}/f{n}" for n in range(100)]
        bad = [f"{scheme}://{host}/{n}" for n, host in enumerate(hosts) for scheme in ("http", "https")]
        for listed in ([*bad, *good], [*good[:50], *bad, *good[50:]]):
            where = tmp_path / str(len(list(tmp_path.iterdir())))
            result = download("-", where, *QUICK, "--layout", "mirror", stdin="\n".join(listed))
            assert result.exit == 1
            assert set(result.codes.values()) <= {"bad-url", "dns", "bad-name"}
            assert result.report["stored"] == 100, result.codes


@pytest.mark.parametrize("tls", [False, True])
def test_end_of_a_large_body_is_read_at_once(tls: bool, tmp_path: Path) -> None:
    """A setting that makes room for many bytes at once must not make the client wait for as many."""
    body = bytes(range(256)) * 4096
    (whole,) = ok(body)
    assert isinstance(whole, bytes)
    steps = [whole[:-3], Pause(0.2), whole[-3:-2], Pause(0.2), whole[-2:]]
    certificates = Certificates(tmp_path)
    with Server(files={"a": steps, "b": steps}, tls=certificates.context() if tls else None) as server:
        options = ("--retries", "0", "--read-timeout", "2s", "--connections", "1", "--workers", "1")
        result = download(server.url, tmp_path / "d", *options, "--cacert", str(certificates.ca))
    assert (result.exit, result.files) == (0, {"a": body, "b": body})
    assert result.report["lanes"] == {"wire": 2, "requests": 0}


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("end", ["closes", "says so and closes"])
def test_server_closing_each_connection_costs_no_attempt(end: str, lane: str, tmp_path: Path) -> None:
    headers = ("Connection: close",) if end == "says so and closes" else ()
    answers: dict[str, Answer] = {f"f{n}": [*ok(b"x%d" % n, *headers), CLOSE_WITH] for n in range(100)}
    with Server(files=answers) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--connections", "4", "--lane", lane)
    assert result.files == {f"f{n}": b"x%d" % n for n in range(100)}
    if lane == "auto":
        assert result.report["attempts_by_error"] == {}
        # Connections send one more request until it is known, and again after a close that came late. If it
        # were never known, each would, and there were 200.
        assert 100 <= result.report["lanes"]["wire"] < 150


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    "timeout",
    [
        [*status(408, "Connection: close", body=b"idle"), CLOSE],
        [b"HTTP/1.0 408 Request Time-out\r\nConnection: close\r\n\r\n<p>idle", CLOSE],
        status(408, body=b"idle"),
    ],
    ids=["closes", "HTTP/1.0", "stays open"],
)
def test_408_for_an_idle_connection_costs_no_attempt(
    timeout: list[Step], lane: str, tmp_path: Path
) -> None:
    """It arrives just as the next request is sent. A file that is always answered so fails."""
    counts: Counter[int] = Counter()

    def answer(request: Request) -> Sequence[Step]:
        counts[request.connection] += 1
        return timeout if counts[request.connection] == 4 else ok(request.target.encode())

    listed = [f"f{n}" for n in range(40)] + ["bad"]
    options = (
        "--connections",
        "2",
        "--pipeline",
        "off",
        "--workers",
        "1",
        "--lane",
        lane,
        "--retries",
        "0",
    )
    with Server({"/bad": status(408)}, default=answer) as server:
        source = "".join(f"{server.url}/{name}\n" for name in listed)
        result = download("-", tmp_path / "d", *QUICK, *options, stdin=source)
    assert result.codes == {"bad": "http-408"}
    assert result.files == {name: f"/{name}".encode() for name in listed[:-1]}
    assert result.report["attempts_by_error"] == {"http-408": 1}


@pytest.mark.parametrize("lane", LANES)
def test_unsolicited_response_is_not_stored(lane: str, tmp_path: Path) -> None:
    wrong = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nWRONG"
    answers: dict[str, Answer] = {
        "a": [b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nright a" + wrong],
        "b": ok(b"right b"),
        "c": [b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nright cRUBBISH"],
        "d": ok(b"right d"),
    }
    with Server(files=answers) as server:
        options = ("--workers", "1", "--connections", "1", "--lane", lane)
        result = download(server.url, tmp_path / "d", *QUICK, *options)
    assert result.files == {name: b"right " + name.encode() for name in "abcd"}


def test_other_responses_are_handed_to_the_requests_client(tmp_path: Path) -> None:
    packed = gzip.compress(b"packed", mtime=0)
    answers: dict[str, Answer] = {
        "plain": ok(b"plain"),
        "moved": redirect("/target"),
        "cookie": ok(b"cookie", "Set-Cookie: a=1"),
        "packed": ok(packed, "Content-Encoding: gzip"),
        "closed": [b"HTTP/1.1 200 OK\r\n\r\nclosed", CLOSE],
        "flaky": Nth([RESET], ok(b"flaky")),
        "busy": Nth(status(503, "Retry-After: 0"), ok(b"busy")),
        "gone": status(410),
    }
    # One host each, so that no response makes another's origin lose the pipelined client.
    with Server({"/target": ok(b"moved")}, files=answers, host="0.0.0.0") as server:
        port = server.url.rpartition(":")[2]
        urls = [f"http://127.0.2.{n}:{port}/get/{name}" for n, name in enumerate(answers, 1)]
        result = download("-", tmp_path / "d", *QUICK, stdin="\n".join(urls))
        assert len(server.seen("/get/gone")) == 1
        assert len(server.seen("/get/moved")) == 2
    assert result.codes == {"gone": "http-410"}
    expected = {name: name.encode() for name in answers if name != "gone"}
    assert result.files == expected | {"packed": packed}
    assert result.report["attempts_by_error"] == {"http-410": 1, "http-503": 1, "reset": 1}
    assert result.report["unverified"] == 1


def test_each_response_on_a_connection_is_judged_separately(tmp_path: Path) -> None:
    odd: dict[str, Answer] = {
        "packed": ok(gzip.compress(b"packed", mtime=0), "Content-Encoding: gzip"),
        "closed": [b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nclosed", CLOSE],
        "cookie": ok(
            b"cookie", "Set-Cookie: a=1"
        ),  # must be last: the cookie disables the pipelined client
    }
    answers: dict[str, Answer] = {}
    for name, answer in odd.items():
        answers |= {f"before-{name}": ok(b"plain"), name: answer, f"behind-{name}": ok(b"plain")}
    with Server(files=answers) as server:
        urls = [f"{server.url}/get/{name}" for name in answers]
        result = download("-", tmp_path / "d", *QUICK, "--connections", "1", stdin="\n".join(urls))
        # Through the pipelined client, which cannot store it, and through the requests client.
        assert {name: len(server.seen(f"/get/{name}")) >= 2 for name in odd} == dict.fromkeys(odd, True)
    assert result.exit == 0
    assert sorted(result.files) == sorted(answers)
    assert result.files["closed"] == b"closed"
    assert result.report["unverified"] == 1


def test_origin_with_repeated_handovers_uses_the_requests_client(tmp_path: Path) -> None:
    answers = {f"f{n}": redirect(f"/target/{n}") for n in range(50)}
    targets = {f"/target/{n}": ok(b"%d" % n) for n in range(50)}
    with Server(targets, files=answers) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--workers", "1", "--connections", "2")
    assert result.files == {f"f{n}": b"%d" % n for n in range(50)}
    # Three in a row, and the request in flight beside them.
    assert 3 <= result.report["lanes"]["wire"] <= 4


def test_large_files_are_streamed(tmp_path: Path) -> None:
    body = bytes(range(256)) * 40_000  # 10 MB
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    answers: dict[str, Answer] = {
        "large": ok(body),
        "chunked": [chunked % (len(body), body)],
        "too-large": ok(body + b"x"),
        "too-chunked": [chunked % (len(body) + 1, body + b"x")],
    }
    with Server(files=answers) as server:
        result = download(
            server.url, tmp_path / "d", *QUICK, "--max-size", str(len(body)), "--workers", "1"
        )
    assert result.files == {"large": body, "chunked": body}
    assert result.codes == {"too-large": "too-large", "too-chunked": "too-large"}
    assert result.report["lanes"]["requests"] == 0
    assert result.report["peak_rss_mb"]["worker"] < 100


@pytest.mark.parametrize("lane", LANES)
def test_slow_body_ends_at_the_minimum_speed(lane: str, tmp_path: Path) -> None:
    """A body that never ends, and one that is slow but not too slow."""
    drip = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    steady = [step for _ in range(24) for step in (b"x" * 1000, Pause(0.5))]
    answers: dict[str, Answer] = {
        "drip": [drip, Forever(b"x", 0.1)],
        "chunks": [chunked, Forever(b"1\r\nx\r\n", 0.1)],
        "steady": [b"HTTP/1.1 200 OK\r\nContent-Length: 24000\r\n\r\n", *steady],
    }
    with Server(files=answers) as server:
        options = ("--retries", "0", "--min-speed", "1k", "--lane", lane)
        result = download(server.url, tmp_path / "d", *options)
    assert result.codes == {"drip": "slow", "chunks": "slow"}
    assert result.files == {"steady": b"x" * 24000}
    assert result.report["seconds"] < 25


@pytest.mark.parametrize("lane", LANES)
def test_slow_body_ends_at_the_deadline(lane: str, tmp_path: Path) -> None:
    """Bytes keep coming, so that no read ever times out."""
    drip = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    answers: dict[str, Answer] = {
        "drip": [drip, Forever(b"x", 0.1)],
        "continue": [Forever(b"HTTP/1.1 100 Continue\r\n\r\n", 0.1)],
        "good": ok(b"good"),
    }
    with Server(files=answers) as server:
        options = ("--retries", "0", "--deadline", "1s", "--lane", lane)
        result = download(server.url, tmp_path / "d", *options)
    assert result.codes == {"drip": "timeout", "continue": "timeout"}
    assert result.files == {"good": b"good"}


def test_tls_sessions_are_resumed(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    answers: dict[str, Answer] = {
        f"f{n}": [*ok(b"%d" % n, *(["Connection: close"] if n % 5 == 4 else [])), *([CLOSE] * (n % 5 == 4))]
        for n in range(100)
    }
    with Server(files=answers, tls=certificates.context()) as server:
        options = ("--cacert", str(certificates.ca), "--workers", "1", "--connections", "1")
        result = download(server.url, tmp_path / "d", *QUICK, *options, "--pipeline", "off")
        connections, resumed = server.connections, server.resumed
    assert result.files == {f"f{n}": b"%d" % n for n in range(100)}
    # One for the listing, and one for the first request to the origin.
    assert connections >= 20
    assert resumed >= connections - 3
