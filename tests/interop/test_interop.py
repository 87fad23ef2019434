"""The command line against other servers; see the README in this directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from checker import Truth, check
from harness import slow_but
from programs import (
    Program,
    Room,
    Tls,
    apache,
    gunicorn,
    haproxy,
    http_server,
    lighttpd,
    nginx,
    nginx_log,
    squid,
    squid_log,
)
from servers import Result, download

Start = Callable[[Room], AbstractContextManager[Program]]


def assert_depth(report: dict[str, Any], *, at_least: int = 1, at_most: int | None = None) -> None:
    """Check the most requests that were in flight on one connection."""
    depth = report["pipeline_depth"]["max"]
    assert depth >= at_least, report["pipeline_depth"]
    assert at_most is None or depth <= at_most, report["pipeline_depth"]


def assert_all(result: Result, dest: Path, truth: Truth, *, listed: bool = True) -> None:
    """Check that the run succeeded, every file is there byte for byte, and nothing else is; with ``listed``
    that the journal agrees: the checker reads that of a listing."""
    assert result.exit == 0, (result.stderr, result.report, result.codes)
    report = result.report
    assert (report["complete"], report["failed"], report["skipped"]) == (True, 0, 0)
    assert report["listed"] == report["stored"] == truth.files
    assert report["unverified"] == 0
    if listed:
        checked = check(dest, truth)
        assert (checked.listed, checked.stored) == (truth.files, truth.files)
    names = [truth.name(index) for index in range(truth.files)]
    assert result.files == {name: truth.content(name) for name in names}


def url_list(path: Path, program: Program, truth: Truth) -> str:
    """Write a list of all files of ``program``."""
    path.write_text("".join(f"{program.url}/get/{truth.name(index)}\n" for index in range(truth.files)))
    return str(path)


class Kind(NamedTuple):
    """A server, how many requests on one connection are expected to work with it, and options for it."""

    start: Start
    at_least: int = 1
    at_most: int | None = None
    options: tuple[str, ...] = ()


SERVERS = {
    "nginx": Kind(nginx, at_least=2),
    "nginx-100": Kind(lambda room: nginx(room, requests=100), at_least=2),
    "apache": Kind(apache, at_least=2),
    "lighttpd": Kind(lighttpd, at_least=2),
    # Its listen backlog is five; a further connection waits for a second or more.
    "http.server": Kind(http_server, at_most=1, options=("--workers", "1", "--connections", "5")),
    "gunicorn": Kind(gunicorn, at_most=1),
}


@pytest.mark.parametrize("name", slow_but([(name,) for name in SERVERS if name != "gunicorn"], SERVERS))
def test_download_from_a_listing(name: str, room: Room, truth: Truth, tmp_path: Path) -> None:
    kind = SERVERS[name]
    with kind.start(room) as program:
        result = download(program.url, tmp_path / "d", *kind.options)
    assert_all(result, tmp_path / "d", truth)
    assert_depth(result.report, at_least=kind.at_least, at_most=kind.at_most)


@pytest.mark.parametrize("name", slow_but([(name,) for name in SERVERS if name != "http.server"], SERVERS))
def test_download_from_a_url_list(name: str, room: Room, truth: Truth, tmp_path: Path) -> None:
    """With few connections, each of them meets the limits of the server."""
    kind = SERVERS[name]
    with kind.start(room) as program:
        source = url_list(tmp_path / "urls.txt", program, truth)
        result = download(source, tmp_path / "d", "--workers", "1", "--connections", "2")
    assert_all(result, tmp_path / "d", truth, listed=False)
    assert_depth(result.report, at_least=kind.at_least, at_most=kind.at_most)


def test_nginx_over_tls(room: Room, tls: Tls, truth: Truth, tmp_path: Path) -> None:
    with nginx(room, tls=tls, requests=100) as program:
        result = download(program.url, tmp_path / "d", "--cacert", str(tls.ca))
    assert_all(result, tmp_path / "d", truth)
    assert_depth(result.report, at_least=2)


def test_haproxy_before_nginx(room: Room, truth: Truth, tmp_path: Path) -> None:
    with nginx(room) as origin, haproxy(room, origin) as front:
        result = download(front.url, tmp_path / "d")
    assert_all(result, tmp_path / "d", truth)
    assert_depth(result.report)


def test_https_through_squid(room: Room, tls: Tls, truth: Truth, tmp_path: Path) -> None:
    with nginx(room, tls=tls) as origin:
        with squid(room, origin) as proxy:
            options = ("--proxy", proxy.url, "--cacert", str(tls.ca))
            source = url_list(tmp_path / "urls.txt", origin, truth)
            result = download(source, tmp_path / "d", *options)
        requests = nginx_log(room, origin)
    assert_all(result, tmp_path / "d", truth, listed=False)
    assert_depth(result.report, at_least=2)
    # Nothing bypassed the proxy, and a tunnel was used for many files.
    tunnels = squid_log(room)
    assert all(f" CONNECT 127.0.0.1:{origin.port} " in line for line in tunnels)
    connections = {request.connection for request in requests}
    assert len(tunnels) == len(connections) < truth.files / 10


def test_http_through_squid(room: Room, truth: Truth, tmp_path: Path) -> None:
    with nginx(room) as origin:
        with squid(room, origin) as proxy:
            result = download(origin.url, tmp_path / "d", "--proxy", proxy.url)
        requests = nginx_log(room, origin)
    assert_all(result, tmp_path / "d", truth)
    assert_depth(result.report, at_most=1)
    assert result.report["lanes"]["wire"] >= truth.files
    forwarded = squid_log(room)
    assert all(f" GET {origin.url}/" in line for line in forwarded)
    assert len(forwarded) == len(requests)


@pytest.mark.parametrize("connections", [1, 8])
def test_requests_beyond_the_nginx_connection_limit_are_repeated_once(
    connections: int, room: Room, truth: Truth, tmp_path: Path
) -> None:
    """It closes after 100 requests: what had been sent to it by then is requested again, once,
    elsewhere.
    """
    with nginx(room, requests=100) as program:
        options = ("--workers", "1", "--connections", str(connections))
        result = download(program.url, tmp_path / "d", *options)
        log = nginx_log(room, program)
    assert_all(result, tmp_path / "d", truth)
    assert_depth(result.report, at_least=2)
    assert result.report["attempts_by_error"] == {}
    assert {request.status for request in log} == {200}
    asked = Counter(request.target for request in log if request.target != "/list")
    assert asked.keys() == {f"/get/{truth.name(index)}" for index in range(truth.files)}
    assert max(asked.values()) <= 2
    of_connection = Counter(request.connection for request in log)
    assert max(of_connection.values()) == max(request.number for request in log) == 100
    assert len(of_connection) >= truth.files / 100
