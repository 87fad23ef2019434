"""Both clients through a proxy: a tunnel is a connection like any other; a forwarding proxy gets one
request at a time."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import CLOSE, Certificates, Server, Tunnel, closed_port, download, listing, ok, status
from servers.answers import Answer

LANES = ("auto", "requests")
QUICK = ("--retries", "1", "--backoff", "50ms", "--read-timeout", "2s", "--workers", "1")
COUNT = 300
FILES: dict[str, Answer] = {f"f{n}": ok(b"x%d" % n) for n in range(COUNT)}
BODIES = {f"f{n}": b"x%d" % n for n in range(COUNT)}
HOST = "127.0.3.1"
PASSWORD = "Basic " + b64encode(b"me:pw").decode()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[Server, tuple[str, ...]]]:
    """Run a server over TLS, at an address that no proxy here has; yield it and the options that trust
    it.
    """
    certificates = Certificates(tmp_path)
    context = certificates.context(hosts=[HOST])
    with Server(files=FILES, tls=context, host=HOST) as server:
        yield server, (*QUICK, "--cacert", str(certificates.ca))


def by(proxy: str) -> tuple[str, str]:
    return "--proxy", proxy.replace("//", "//me:pw@")


def test_both_clients_send_the_same_request_through_a_tunnel(
    secure: tuple[Server, tuple[str, ...]], tmp_path: Path
) -> None:
    server, options = secure
    seen = {}
    with Tunnel() as proxy:
        for lane in LANES:
            server.requests.clear()
            proxy.heads.clear()
            given = (*options, *by(proxy.url), "-H", "X-One: 1", "--lane", lane, "--connections", "4")
            result = download(server.url, tmp_path / lane, *given)
            assert (result.exit, result.files) == (0, BODIES), result.stderr
            assert COUNT <= result.report["lanes"][{"auto": "wire"}.get(lane, lane)] <= COUNT * 1.4
            seen[lane] = {request.target: request.headers for request in server.requests}
            assert len(seen[lane]) == COUNT + 1
            # Few tunnels, each requested with the proxy's credentials, which the server does not get.
            assert 1 <= len(proxy.heads) <= 6
            for head in proxy.heads:
                target = server.url.removeprefix("https://").encode()
                assert head.startswith(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n" % (target, target))
                assert head.lower().count(b"\r\nhost:") == 1
                assert PASSWORD.encode() in head
    assert seen["auto"] == seen["requests"]
    assert not any(request.header("Proxy-Authorization") for request in server.requests)


@pytest.mark.parametrize("lane", LANES)
def test_every_2xx_opens_a_tunnel(
    lane: str, secure: tuple[Server, tuple[str, ...]], tmp_path: Path
) -> None:
    """Whatever the fields say of a body: there is none (RFC 9110 §9.3.6)."""
    server, options = secure
    answers = (
        b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.0 299 \r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\nContent-Length: x\n\n",
    )
    for number, answer in enumerate(answers):
        with Tunnel(answer) as proxy:
            given = (*options, *by(proxy.url), "--lane", lane)
            result = download("-", tmp_path / f"{number}", *given, stdin=f"{server.url}/get/f0\n")
        target = server.url.removeprefix("https://").encode()
        assert proxy.heads[0].startswith(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n" % (target, target))
        assert (result.exit, result.files) == (0, {"f0": b"x0"}), (answer, result.stderr)


def test_tunnels_are_pipelined(secure: tuple[Server, tuple[str, ...]], tmp_path: Path) -> None:
    server, options = secure
    with Tunnel() as proxy:
        given = (*options, *by(proxy.url), "--pipeline", "16", "--connections", "2")
        result = download(server.url, tmp_path / "d", *given)
    assert (result.exit, result.files) == (0, BODIES), result.stderr
    assert result.report["pipeline_depth"]["max"] == 16


@pytest.mark.parametrize(
    "name", ["http://files.example/", "http://files.example:8080/", "http://[::1]:81/"]
)
def test_both_clients_send_the_same_request_to_a_forwarding_proxy(name: str, tmp_path: Path) -> None:
    source = "".join(f"{name}f{n}?q={n}\n" for n in range(50))
    seen = {}
    with Server(default=lambda request: ok(request.target.encode())) as proxy:
        for lane in LANES:
            proxy.requests.clear()
            given = (*QUICK, *by(proxy.url), "--lane", lane, "--connections", "4")
            result = download("-", tmp_path / lane, *given, stdin=source)
            assert result.exit == 0, result.stderr
            assert len(result.files) == 50
            assert {body.decode() for body in result.files.values()} == set(source.split())
            assert result.report["lanes"][{"auto": "wire"}.get(lane, lane)] == 50
            assert result.report["pipeline_depth"]["max"] <= 1
            seen[lane] = {request.target: request.headers for request in proxy.requests}
            assert all(request.header("Proxy-Authorization") == PASSWORD for request in proxy.requests)
    assert seen["auto"] == seen["requests"]
    assert result.report["connections_peak"] <= 4


def test_listing_through_a_proxy(tmp_path: Path) -> None:
    names = sorted(BODIES)
    with Server(
        default=lambda request: (
            listing(names) if "/list" in request.target else ok(BODIES[request.target.rpartition("/")[2]])
        )
    ) as proxy:
        result = download("http://files.example", tmp_path / "d", *QUICK, *by(proxy.url))
        assert (result.exit, result.files) == (0, BODIES), result.stderr
        assert all(request.target.startswith("http://files.example/") for request in proxy.requests)
        assert {request.header("Host") for request in proxy.requests} == {"files.example"}
    assert result.report["pipeline_depth"]["stopped"] == {"an HTTP proxy": 1}


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 502 It does not answer\r\n\r\n",
        b"no HTTP at all\r\n\r\n",
        b"",
        b"HTTP/1.1 100 Continue\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
    ],
    ids=["407", "403", "502", "nonsense", "closes", "closes-in-100", "continues"],
)
def test_proxy_refuses_the_tunnel(answer: bytes, lane: str, tmp_path: Path) -> None:
    with Tunnel(answer) as proxy:
        given = (*QUICK, *by(proxy.url), "--lane", lane)
        result = download("-", tmp_path / "d", *given, stdin="https://files.example/a\n")
        # Credentials that were refused are not sent again: that may lock the account.
        assert len(proxy.heads) == (1 if b" 407 " in answer else 2)
    assert (result.exit, result.codes) == (1, {"a": "proxy"}), result.stderr
    told = json.dumps(result.failures) + result.stderr
    assert "pw" not in told
    if answer.startswith(b"HTTP") and b" 100 " not in answer:
        said = answer.split(b"\r\n")[0].split(b" ", 1)[1].decode()
        assert result.failures["a"]["detail"].startswith(f"the proxy answered {said}")


@pytest.mark.parametrize("lane", LANES)
def test_unreachable_proxy(lane: str, tmp_path: Path) -> None:
    source = "https://files.example/a\nhttp://files.example/b\n"
    with closed_port() as dead:
        given = (*QUICK, "--proxy", dead, "--lane", lane)
        result = download("-", tmp_path / "d", *given, stdin=source)
    assert (result.exit, result.codes) == (1, {"a": "proxy", "b": "proxy"}), result.stderr


@pytest.mark.parametrize("lane", LANES)
def test_a_certificate_is_verified_through_a_tunnel(lane: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with Server(files=FILES, tls=certificates.context()) as server, Tunnel() as proxy:
        result = download(
            "-", tmp_path / "d", *QUICK, "--lane", lane, *by(proxy.url), stdin=f"{server.url}/get/f0\n"
        )
    assert result.codes == {"f0": "tls-verify"}


@pytest.mark.parametrize("after", [2_000, 9_000])
def test_broken_tunnel(after: int, secure: tuple[Server, tuple[str, ...]], tmp_path: Path) -> None:
    server, options = secure
    source = "".join(f"{server.url}/get/f{n}\n" for n in range(COUNT))
    with Tunnel(breaks=after) as proxy:
        given = (*options, *by(proxy.url), "--pipeline", "16", "--connections", "1")
        result = download("-", tmp_path / "d", *given, stdin=source)
        assert len(proxy.heads) >= 2
    assert (result.exit, result.files) == (0, BODIES), result.stderr


def test_proxy_error_is_the_response(tmp_path: Path) -> None:
    """The proxy responds to a plain GET in place of the server."""
    answers = {
        "http://files.example/a": status(407),
        "http://files.example/b": status(502),
        "http://files.example/c": [*ok(b"c", "Connection: close"), CLOSE],
    }
    with Server(routes=answers) as proxy:
        source = "\n".join(answers)
        result = download("-", tmp_path / "d", *QUICK, *by(proxy.url), stdin=source)
        assert proxy.count("http://files.example/a") <= 2  # the pipelined client hands it over
    assert result.codes == {"a": "proxy", "b": "http-502"}
    assert "the proxy answered 407" in str(result.failures["a"])
    assert result.files == {"c": b"c"}


def test_proxy_over_tls(tmp_path: Path) -> None:
    """Forwarding and tunnels; TLS within TLS goes through the requests client."""
    certificates = Certificates(tmp_path)
    options = (*QUICK, "--cacert", str(certificates.ca))
    plain = "".join(f"http://files.example/f{n}\n" for n in range(20))
    with Server(default=ok(b"x"), tls=certificates.context()) as proxy:
        result = download("-", tmp_path / "http", *options, *by(proxy.url), stdin=plain)
        assert (result.exit, len(result.files)) == (0, 20), result.stderr
        assert result.report["lanes"]["wire"] == 20
    with (
        Server(files=FILES, tls=certificates.context()) as server,
        Tunnel(tls=certificates.context()) as tunnel,
    ):
        source = "".join(f"{server.url}/get/f{n}\n" for n in range(20))
        result = download("-", tmp_path / "https", *options, *by(tunnel.url), stdin=source)
        assert (result.exit, len(result.files)) == (0, 20), result.stderr
        assert result.report["lanes"]["requests"] == 20
        assert tunnel.heads
