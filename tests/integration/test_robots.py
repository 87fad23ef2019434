"""--robots: robots.txt of each origin is honoured (RFC 9309)."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from harness import Job, members
from servers import (
    CLOSE,
    CUT,
    HANG,
    RESET,
    Answer,
    Certificates,
    Nth,
    Pause,
    Request,
    Server,
    Step,
    Tunnel,
    Until,
    closed_port,
    download,
    ok,
    redirect,
    status,
)
from servers.rows import HINTS_LAST, SWITCHED

LANES = pytest.mark.parametrize("lane", ["auto", "requests"])
OPTIONS = ("--robots", "--workers", "1", "--retries", "1", "--backoff", "20ms")
BODY = b"hello"
SOME = b"User-agent: *\nDisallow: /no/\nAllow: /no/but\n"
NOTHING = b"User-agent: *\nDisallow: /\n"


def urls(server: Server, *paths: str) -> str:
    return "\n".join(server.url + path for path in paths)


@LANES
def test_disallowed_files_are_not_requested(lane: str, tmp_path: Path) -> None:
    names = [f"no/{n}" for n in range(300)] + [f"yes/{n}" for n in range(700)] + ["no/but"]
    with Server({"/robots.txt": ok(SOME)}, default=ok(BODY)) as server:
        listed = urls(server, *[f"/{name}?v=1" for name in names])
        options = (*OPTIONS, "--layout", "mirror", "--lane", lane, "--pipeline", "8")
        result = download("-", tmp_path / "d", *options, stdin=listed)
        requested = [request.target for request in server.requests]
    assert result.exit == 1
    assert Counter(result.codes.values()) == {"robots": 300}
    assert len(result.files) == 701
    assert not [target for target in requested if target.startswith("/no/") and "but" not in target]
    assert requested[0] == "/robots.txt"
    assert requested.count("/robots.txt") == 1
    assert result.report["attempts_by_error"] == {}
    assert {failure["attempts"] for failure in result.failures.values()} == {0}


def test_without_the_option_nobody_asks(tmp_path: Path) -> None:
    with Server({"/robots.txt": ok(NOTHING)}, default=ok(BODY)) as server:
        result = download("-", tmp_path / "d", "--workers", "1", stdin=urls(server, "/a"))
        assert [request.target for request in server.requests] == ["/a"]
    assert result.exit == 0


def test_file_server_as_source(tmp_path: Path) -> None:
    """Names below one URL take another way into the schedule than URLs of a list."""
    files: dict[str, Answer] = {f"{kind}{n}": ok(BODY) for kind in ("a", "b") for n in range(50)}
    rules = ok(b"User-agent: *\nDisallow: /get/b\nDisallow: /list\n")
    with Server({"/robots.txt": rules}, files=files) as server:
        result = download(server.url, tmp_path / "d", *OPTIONS)
        assert not server.count("/get/b")
    assert set(result.files) == {f"a{n}" for n in range(50)}
    assert set(result.codes.values()) == {"robots"}


def test_each_origin_is_asked_once_by_a_worker(tmp_path: Path) -> None:
    """Of 150 origins, one in three disallows half of the paths; the files of all are mixed in the list."""

    def answer(request: Request) -> list[Step]:
        if request.target != "/robots.txt":
            return ok(BODY)
        return ok(SOME) if int(request.host.split(".")[3]) % 3 == 0 else status(404)

    with Server(default=answer, host="0.0.0.0") as server:
        hosts = [f"127.0.2.{n}" for n in range(1, 151)]
        listed = [
            f"http://{host}:{server.port}/{path}/{k}"
            for k in range(4)
            for path in ("no", "yes")
            for host in hosts
        ]
        options = (*OPTIONS, "--connections", "8", "--layout", "mirror")
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
        asked = Counter(r.host for r in server.requests if r.target == "/robots.txt")
        unwanted = [
            r for r in server.requests if r.target.startswith("/no") and int(r.host.split(".")[3]) % 3 == 0
        ]
    assert asked == dict.fromkeys(hosts, 1)
    assert not unwanted
    assert Counter(result.codes.values()) == {"robots": 50 * 4}
    assert len(result.files) == 150 * 8 - 50 * 4


@LANES
@pytest.mark.parametrize(
    ("answer", "ends", "asked"),
    [
        (status(404), "", 1),
        (status(403), "", 1),
        ([b"HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\n", Pause(0.1), RESET], "", 1),
        (status(429), "", 2),
        (status(204), "", 1),
        (ok(b""), "", 1),
        (ok(b"<!doctype html><title>Not found</title>"), "", 1),
        (ok(gzip.compress(NOTHING), "Content-Encoding: gzip"), "robots", 1),
        (ok(b"\xef\xbb\xbf" + NOTHING), "robots", 1),
        (ok(NOTHING.replace(b"\n", b"\r")), "robots", 1),
        (status(500), "robots", 2),
        (status(503), "robots", 2),
        (status(501), "robots", 1),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", CUT], "robots", 2),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9, 9\r\n\r\n", CLOSE], "robots", 2),
        ([HANG], "robots", 2),
        ([HINTS_LAST, *ok(NOTHING)], "robots", 1),
        ([SWITCHED, HANG], "robots", 1),
        (Nth(status(500), ok(b"")), "", 2),
        (Nth(status(503, "Retry-After: 0"), ok(NOTHING)), "robots", 2),
    ],
)
def test_each_answer_means_what_the_rfc_says(
    answer: Answer, ends: str, asked: int, lane: str, tmp_path: Path
) -> None:
    with Server({"/robots.txt": answer}, default=ok(BODY)) as server:
        options = (*OPTIONS, "--lane", lane, "--read-timeout", "1s")
        result = download("-", tmp_path / "d", *options, stdin=urls(server, "/a", "/b"))
        # What the pipelined client hands over is requested once more.
        assert asked <= len(server.seen("/robots.txt")) <= (2 if lane == "auto" else 1) * asked
        assert server.count("/a") == (0 if ends else 1)
    assert result.codes == (dict.fromkeys("ab", ends) if ends else {})
    assert len(result.files) == (0 if ends else 2)


@LANES
@pytest.mark.parametrize("max_size", ["", "100k"])
def test_long_robots_txt(lane: str, max_size: str, tmp_path: Path) -> None:
    """The first 500 KiB count, without the line that is cut there."""
    first = b"User-agent: *\nDisallow: /early\n"
    line = b"Disallow: /filler-that-matches-nothing\n" + b"Allow: /filler\n" * (max_size != "")
    count, rest = divmod((500 << 10) - len(first) - len(b"Disallow: /cu"), len(line))
    text = first + b"#" * (rest - 1) + b"\n" + line * count + b"Disallow: /cut\n"
    text += b"Disallow: /late\n" * 200_000
    with Server({"/robots.txt": ok(text)}, default=ok(BODY)) as server:
        options = (*OPTIONS, "--lane", lane, *(("--max-size", max_size) if max_size else ()))
        listed = urls(server, "/early", "/curious", "/late")
        result = download("-", tmp_path / "d", *options, stdin=listed)
        assert len(server.seen("/robots.txt")) == 1
    assert result.codes == {"early": "robots"}
    assert set(result.files) == {"curious", "late"}
    assert result.report["peak_rss_mb"]["worker"] < 120


@LANES
def test_robots_txt_in_two_pieces(lane: str, tmp_path: Path) -> None:
    steps = ok(b"User-agent: *\nDisallow: /no/\n")
    whole = b"".join(step for step in steps if isinstance(step, bytes))
    rules: list[Step] = [whole[:-12], Pause(0.05), whole[-12:]]
    with Server({"/robots.txt": rules}, default=ok(BODY)) as server:
        listed = urls(server, "/no/a", "/yes/b")
        result = download("-", tmp_path / "d", *OPTIONS, "--lane", lane, stdin=listed)
    assert result.codes == {"a": "robots"}
    assert set(result.files) == {"b"}


@LANES
@pytest.mark.parametrize(("hops", "ends"), [(1, {"no": "robots"}), (5, {"no": "robots"}), (6, {})])
def test_redirected_robots_txt(hops: int, ends: dict[str, str], lane: str, tmp_path: Path) -> None:
    """Up to five redirects, also to another host, where they say what holds here (RFC 9309 §2.3.1.2)."""
    with Server({"/hop0": ok(b"User-agent: *\nDisallow: /no\n")}) as other:
        other.routes |= {f"/hop{n}": redirect(f"/hop{n - 1}") for n in range(1, 6)}
        routes: dict[str, Answer] = {"/robots.txt": redirect(f"{other.url}/hop{hops - 1}")}
        with Server(routes, default=ok(BODY)) as server:
            # --redirects is for files.
            options = (*OPTIONS, "--lane", lane, "--redirects", "0")
            result = download("-", tmp_path / "d", *options, stdin=urls(server, "/no", "/yes"))
        assert not other.count("/robots.txt")
    assert result.codes == ends


@pytest.mark.parametrize("rules", [ok(b"User-agent: *\nDisallow: /target\n"), status(500)])
def test_redirect_target_that_is_disallowed(rules: Answer, tmp_path: Path) -> None:
    with Server({"/robots.txt": rules}, default=ok(BODY)) as other:
        routes: dict[str, Answer] = {
            "/robots.txt": ok(b"User-agent: *\nDisallow: /secret\n"),
            "/there": redirect(f"{other.url}/target"),
            "/here": redirect("/secret"),
            "/fine": redirect("/else"),
        }
        with Server(routes, default=ok(BODY)) as server:
            listed = urls(server, "/there", "/here", "/fine")
            result = download("-", tmp_path / "d", *OPTIONS, stdin=listed)
            assert not server.count("/secret")
        assert not other.count("/target")
    assert result.codes == {"there": "robots", "here": "robots"}
    assert result.files == {"fine": BODY}


def test_redirect_to_a_host_that_cannot_be_requested_ends_its_file_only(tmp_path: Path) -> None:
    places = ("[fe80::1%eth0]", f"{'a' * 64}.test", "~!$&'()*+,;=")
    routes: dict[str, Answer] = {"/robots.txt": status(404)}
    routes |= {f"/{n}": redirect(f"https://{place}/x") for n, place in enumerate(places)}
    with Server(routes, default=ok(BODY)) as server:
        listed = urls(server, *[f"/{n}" for n in range(40)])
        result = download("-", tmp_path / "d", *OPTIONS, "--connections", "2", stdin=listed)
    assert set(result.codes) == {str(n) for n in range(len(places))}
    assert set(result.codes.values()) <= {"bad-url", "dns", "redirect-refused", "robots"}
    assert len(result.files) == 40 - len(places)


def test_redirect_target_that_is_allowed(tmp_path: Path) -> None:
    """Files that are redirected to a host whose robots.txt nobody has seen wait for it."""
    with Server({"/robots.txt": ok(SOME)}, default=ok(BODY)) as other:
        with Server(default=lambda request: redirect(other.url + request.target)) as server:
            server.routes["/robots.txt"] = status(404)
            listed = urls(server, *[f"/f{n}" for n in range(40)])
            options = (*OPTIONS, "--connections", "2", "-H", "X-Secret: s")
            result = download("-", tmp_path / "d", *options, stdin=listed)
            assert server.requests[0].header("X-Secret") == "s"
        assert len(other.seen("/robots.txt")) == 1
        # What the user sends is for the hosts of the list only.
        assert all(request.header("X-Secret") is None for request in other.requests)
    assert (result.exit, len(result.files)) == (0, 40)


def test_hosts_that_cannot_be_reached_fail_as_without_the_option(tmp_path: Path) -> None:
    with closed_port() as refused, Server(connected=[CLOSE]) as broken:
        routes: dict[str, Answer] = {"/robots.txt": status(404), "/to-dead": redirect(f"{refused}/x")}
        with Server(routes, default=ok(BODY)) as well:
            listed = [f"{refused}/r{n}" for n in range(5)]
            listed += [f"http://no-such-name.invalid/d{n}" for n in range(5)]
            listed += [f"https://127.0.0.1:{broken.port}/t{n}" for n in range(5)]
            listed += [f"{well.url}/to-dead", f"{well.url}/w"]
            options = ("--workers", "1", "--retries", "1", "--backoff", "20ms")
            plain = download("-", tmp_path / "p", *options, stdin="\n".join(listed))
            result = download("-", tmp_path / "d", *options, "--robots", stdin="\n".join(listed))
    assert result.codes == plain.codes
    assert set(result.codes.values()) == {"connect", "dns", "tls-handshake"}
    assert set(result.files) == {"w"}


def test_port_that_answers_no_syn(tmp_path: Path) -> None:
    """TEST-NET-1: nothing answers; where the network says so instead, it is `connect` in both."""
    listed = "\n".join(f"http://192.0.2.1/{n}" for n in range(3))
    options = ("--workers", "1", "--retries", "1", "--connect-timeout", "500ms", "--backoff", "20ms")
    plain = download("-", tmp_path / "p", *options, stdin=listed)
    result = download("-", tmp_path / "d", *options, "--robots", stdin=listed)
    assert set(result.codes.values()) <= {"connect", "connect-timeout"}
    assert result.codes == plain.codes


def test_slow_robots_txt_blocks_no_other_host(tmp_path: Path) -> None:
    """A host's robots.txt comes only when every file of the others is there."""
    done = Event()
    with Server({"/robots.txt": [Until(done), *ok(SOME)]}, default=ok(BODY)) as slow:

        def answer(request: Request) -> list[Step]:
            if fast.count("/f") == 500:
                done.set()
            return ok(BODY)

        with Server({"/robots.txt": status(404)}, default=answer) as fast:
            listed = [f"{slow.url}/s{n}" for n in range(300)] + [f"{fast.url}/f{n}" for n in range(500)]
            options = (*OPTIONS, "--connections", "2", "--per-host", "1")
            result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
    assert (result.exit, len(result.files)) == (0, 800)


def test_product_token_is_that_of_the_user_agent(tmp_path: Path) -> None:
    text = b"User-agent: mass-downloader\nDisallow: /ours\n\nUser-agent: Foobot\nDisallow: /foo\n"
    text += b"\nUser-agent: mass\nUser-agent: downloader\nUser-agent: Foo\nDisallow: /\n"
    with Server({"/robots.txt": ok(text)}, default=ok(BODY)) as server:
        listed = urls(server, "/ours", "/foo")
        for number, (options, refused) in enumerate(
            [
                ((), {"ours"}),
                (("--user-agent", "FooBot/2.0"), {"foo"}),
                (("--user-agent", "Mozilla/5.0 (compatible; foobot/2.1; +http://x/)"), {"foo"}),
                (("-H", "User-Agent: Foobot"), {"foo"}),
                (("--user-agent", "other"), set()),
            ]
        ):
            result = download("-", tmp_path / f"d{number}", *OPTIONS, *options, stdin=listed)
            assert set(result.codes) == refused, options
            sent = {request.header("User-Agent") for request in server.requests}
            assert len(sent) == 1, "robots.txt is requested by the same client"
            server.requests.clear()


def test_user_headers_and_cookies_go_with_it(tmp_path: Path) -> None:
    with Server({"/robots.txt": ok(SOME)}, default=ok(BODY)) as server:
        options = (*OPTIONS, "-H", "Authorization: Basic eDp5")
        result = download("-", tmp_path / "d", *options, stdin=urls(server, "/a"))
        assert {request.header("Authorization") for request in server.requests} == {"Basic eDp5"}
        # One connection serves robots.txt and the files.
        assert server.connections == 1
    assert result.exit == 0


@LANES
def test_through_a_forwarding_proxy(lane: str, tmp_path: Path) -> None:
    host = "http://files.example"
    with Server({f"{host}/robots.txt": ok(SOME)}, default=ok(BODY)) as proxy:
        options = (*OPTIONS, "--lane", lane, "--proxy", proxy.url)
        listed = f"{host}/no/1\n{host}/yes/1\n"
        result = download("-", tmp_path / "d", *options, stdin=listed)
        targets = [request.target for request in proxy.requests]
    assert targets == [f"{host}/robots.txt", f"{host}/yes/1"]
    assert set(result.codes.values()) == {"robots"}


@LANES
def test_through_a_tunnel_over_tls(lane: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    context = certificates.context(hosts=["127.0.3.1"])
    rules = {"/robots.txt": ok(SOME)}
    with Server(rules, default=ok(BODY), tls=context, host="127.0.3.1") as server, Tunnel() as proxy:
        options = (*OPTIONS, "--lane", lane, "--proxy", proxy.url, "--cacert", str(certificates.ca))
        listed = urls(server, "/no/1", "/yes/1", "/yes/2")
        result = download("-", tmp_path / "d", *options, stdin=listed)
        assert server.count("/no") == 0
        # robots.txt and the files share connections.
        assert len(proxy.heads) <= 2
    assert len(result.files) == 2
    assert set(result.codes.values()) == {"robots"}


def test_proxy_that_refuses(tmp_path: Path) -> None:
    with closed_port() as proxy:
        options = (*OPTIONS, "--proxy", proxy)
        result = download("-", tmp_path / "d", *options, stdin="http://files.example/a\n")
    assert result.codes == {"a": "proxy"}


def test_kill_and_resume(start: Callable[..., Job], tmp_path: Path) -> None:
    """What was refused before the kill is refused afterwards; what was not fetched is fetched."""
    killed = Event()
    with Server({"/robots.txt": ok(SOME)}, default=ok(BODY)) as server:
        server.routes["/yes/late"] = [Until(killed), *ok(BODY)]
        paths = [f"/{kind}/{n}" for n in range(1500) for kind in ("no", "yes")]
        source = tmp_path / "list.txt"
        source.write_text(urls(server, *paths, "/yes/late") + "\n")
        options = (source, "-o", tmp_path / "d", "--layout", "mirror", "--robots", "--workers", "2")
        job = start(*options)
        job.until(lambda: server.count("/yes/late"))
        for pid in members(job.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.wait()
        killed.set()
        again = start(*options, "--json", "--failures", tmp_path / "failures")
        assert again.wait() == 1, again.err
        report = json.loads(again.out)
        assert report["failed_by_error"] == {"robots": 1500}
        assert report["stored"] + report["skipped"] == 1501
        codes = [json.loads(line)["code"] for line in (tmp_path / "failures").read_text().splitlines()]
        assert codes == ["robots"] * 1500
        assert not server.count("/no/")
        # Once the host allows them, the same command fetches them.
        server.routes["/robots.txt"] = status(404)
        last = start(*options, "--json")
        assert last.wait() == 0, last.err
        assert json.loads(last.out)["stored"] == 1500
