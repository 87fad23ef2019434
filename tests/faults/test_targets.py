"""What both clients send: targets as they were written, hosts by UTS 46; by a proxy and redirected, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import Certificates, Request, Server, Step, Tunnel, download, ok, redirect, status

LANES = ("auto", "requests")
QUICK = ("--retries", "0", "--connect-timeout", "5s", "--workers", "1")
# Written, and sent. All that is legal stays; a signature may cover it.
WRITTEN = {
    **{
        each: each
        for each in (
            *(
                "/%7Ea",
                "/%41",
                "/%c3%a9",
                "/a[1].jpg",
                "/?a[]=%5b%5D",
                "/s?",
                "//a",
                "/a//b",
                "/a;b=c?x=y;z",
            ),
            *(
                "/%2e%2e/x",
                "/?/../x",
                "/a?b?c",
                "/100%",
                "/%zz",
                "/!$&'()*+,;=:@-._~",
                "/?sig=A%2fB%3d+/=&x=:@",
            ),
        )
    },
    "?q": "/?q",
    "/s?x#f": "/s?x",
    "/a/../b": "/b",
    "/é ☕?é": "/%C3%A9%20%E2%98%95?%C3%A9",
    '/"<>\\^`{|}?"<>\\^`{|}': "/%22%3C%3E%5C%5E%60%7B%7C%7D?%22%3C%3E%5C%5E%60%7B%7C%7D",
    "/👨‍👩‍👧.jpg": "/%F0%9F%91%A8%E2%80%8D%F0%9F%91%A9%E2%80%8D%F0%9F%91%A7.jpg",
}
# As a Location has it, and sent.
LOCATED = {
    b"/%7Ea%c3[]": "/%7Ea%c3[]",
    b"/s?": "/s?",
    b"x": "/d/x",
    b"../%2e%2e/x?": "/%2e%2e/x?",
    b"?y": "/d/e?y",
    b"?": "/d/e?",
    b"#f": None,  # the same again, without end
    b"/caf\xe9": "/caf%E9",
    b"/caf\xc3\xa9 \xff": "/caf%C3%A9%20%FF",
    b"/?sig=a%2Bb|c": "/?sig=a%2Bb%7Cc",
    b"/a/../b": "/b",
    b" \t/x \t": "/x",
    b"//127.0.0.1:PORT/x;y[": "/x;y[",
    b"///127.0.0.1:PORT/x": "/x",
    b"HTTP://127.0.0.1:PORT?q": "/?q",
}
# References to another host, HOST, that are written in odd ways; and where they lead, "" for nowhere. Where
# browsers and curl go to different hosts, either has the wrong bytes.
ELSEWHERE = {
    "SCHEME://HOST/x": "127.0.0.2",
    "SCHEME:///HOST/x": "127.0.0.2",
    "///HOST/x": "127.0.0.2",
    "\x0b//HOST/x\x01": "127.0.0.2",
    "SCHEME:/HOST/x": "",
    "SCHEME:HOST/x": "",
    "SCHEME:/x": "",
    "SCHEME:x": "",
    "SCHEME:?x": "",
    "SCHEME:": "",
    "SCHEME:\\\\HOST\\x": "",
    "SCHEME:/\\HOST/x": "",
    "SCHEME:\\/HOST/x": "",
    "SCHEME://HOST\\x": "",
    "SCHEME://127.0.0.1\\@HOST/x": "",
    "\\\\HOST\\x": "",
    "/\\HOST/x": "",
    "\\/HOST/x": "",
    "\\x": "",
    "SCH\tEME://HOST/x": "",
    "///": "",
    "SCHEME://": "",
    "SCHEME:////": "",
}
HOSTS = {
    "☕.test": "xn--53h.test",
    "ＦＡß。Test": "xn--fa-hia.test",
    "BÜCHER.test": "xn--bcher-kva.test",
    "نامه‌ای.test": "xn--mgba3gch31f060k.test",
    "Plain.TEST": "plain.test",
    "b%C3%BCcher.test": "xn--bcher-kva.test",
}


def numbered(urls: list[str]) -> str:
    """Return the lines of a list in CSV that names its files by their number."""
    rows = ['"{}",{}'.format(url.replace('"', '""'), number) for number, url in enumerate(urls)]
    return "\n".join(["url,name", *rows])


CSV = ("--list-format", "csv")


@pytest.mark.parametrize("lane", LANES)
def test_target_is_sent_as_it_was_written(lane: str, tmp_path: Path) -> None:
    with Server(default=ok()) as server:
        urls = [f"{server.url}{target}" for target in WRITTEN]
        result = download("-", tmp_path / "d", *QUICK, *CSV, "--lane", lane, stdin=numbered(urls))
        assert (result.exit, result.codes) == (0, {}), result.stderr
        assert sorted(request.target for request in server.requests) == sorted(WRITTEN.values())


@pytest.mark.parametrize("lane", LANES)
def test_location_is_followed_as_it_was_written(lane: str, tmp_path: Path) -> None:
    with Server(default=ok()) as server:
        for number, location in enumerate(LOCATED):
            moved = b"Location: " + location.replace(b"PORT", b"%d" % server.port)
            server.routes[f"/d/e?{number}"] = [
                b"HTTP/1.1 302 Found\r\n%b\r\nContent-Length: 0\r\n\r\n" % moved
            ]
        urls = [f"{server.url}/d/e?{number}" for number in range(len(LOCATED))]
        result = download("-", tmp_path / "d", *QUICK, *CSV, "--lane", lane, stdin=numbered(urls))
        endless = [str(number) for number, sent in enumerate(LOCATED.values()) if sent is None]
        assert result.codes == dict.fromkeys(endless, "redirect-loop")
        first = {url.removeprefix(server.url) for url in urls}
        sent = [request.target for request in server.requests if request.target not in first]
        assert sorted(sent) == sorted(filter(None, LOCATED.values()))


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("lane", LANES)
def test_location_whose_host_is_not_clear_is_refused(lane: str, tls: bool, tmp_path: Path) -> None:
    def answer(request: Request) -> list[Step]:
        if not request.target.startswith("/from/"):
            return ok(request.host.encode())
        location = locations[int(request.target.removeprefix("/from/"))]
        return redirect(
            location.replace("SCHEME", scheme)
            .replace("SCH\tEME", f"{scheme[:2]}\t{scheme[2:]}")
            .replace("HOST", f"127.0.0.2:{server.port}")
        )

    locations = list(ELSEWHERE)
    certificates = Certificates(tmp_path)
    context = certificates.context(hosts=["127.0.0.1", "127.0.0.2"]) if tls else None
    with Server(default=answer, host="0.0.0.0", tls=context) as server:
        scheme = "https" if tls else "http"
        urls = [f"{scheme}://127.0.0.1:{server.port}/from/{n}" for n in range(len(locations))]
        options = (*QUICK, *CSV, "--lane", lane, "--cacert", str(certificates.ca))
        result = download("-", tmp_path / "d", *options, stdin=numbered(urls))
    led = {str(n): ELSEWHERE[location] for n, location in enumerate(locations)}
    assert result.files == {name: host.encode() for name, host in led.items() if host}
    assert result.codes == {name: "redirect-refused" for name, host in led.items() if not host}
    assert {request.target for request in server.requests if request.host != "127.0.0.1"} == {"/x"}


@pytest.mark.parametrize("lane", LANES)
def test_proxy_gets_target_and_host(lane: str, tmp_path: Path) -> None:
    """The whole URL of http."""
    sent = [f"http://{host}{target}" for host in HOSTS.values() for target in WRITTEN.values()]
    with Server(default=ok()) as proxy:
        urls = [f"http://{host}{target}" for host in HOSTS for target in WRITTEN]
        options = (*QUICK, *CSV, "--lane", lane, "--proxy", proxy.url)
        result = download("-", tmp_path / "d", *options, stdin=numbered(urls))
        assert (result.exit, result.codes) == (0, {}), result.stderr
        assert sorted(request.target for request in proxy.requests) == sorted(sent)
        for request in proxy.requests:
            assert request.header("Host") == request.target.split("/")[2].partition("?")[0]


@pytest.mark.parametrize("lane", LANES)
def test_tunnel_and_certificate_are_of_the_host_in_ascii(lane: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    # No certificate can be made for an emoji, except one for all names of a domain.
    hosts = {host: sent for host, sent in HOSTS.items() if "☕" not in host} | {
        "☕.W.test": "xn--53h.w.test"
    }
    names = {*hosts.values(), "*.w.test"} - {"xn--53h.w.test"}
    with Server(default=ok(), tls=certificates.context(hosts=sorted(names))) as server:
        to = ("127.0.0.1", server.port)
        with Tunnel(to=to) as proxy:
            urls = [f"https://{host}:{server.port}/%7E[]?" for host in hosts]
            options = (*QUICK, *CSV, "--lane", lane, "--proxy", proxy.url, "--cacert", str(certificates.ca))
            result = download("-", tmp_path / "d", *options, stdin=numbered(urls))
            assert (result.exit, result.codes) == (0, {}), result.stderr
            asked = {head.split(b" ")[1].decode() for head in proxy.heads}
        assert asked == {f"{name}:{server.port}" for name in hosts.values()}
        assert {request.target for request in server.requests} == {"/%7E[]?"}
        assert {request.header("Host") for request in server.requests} == asked


@pytest.mark.parametrize("layout", ["flat", "mirror"])
def test_names_are_those_of_the_url_as_it_was_written(layout: str, tmp_path: Path) -> None:
    """A job that was begun by an earlier version goes on with the same names."""
    with Server(default=ok()) as server:
        place = server.url.removeprefix("http://")
        written = ["/%7Ea", "/x/%c3%a9", "/a[1].jpg", "/s?", "/a/../b", "/é☕"]
        urls = "".join(f"{server.url}{target}\n" for target in written)
        options = (*QUICK, "--layout", layout)
        result = download("-", tmp_path / "d", *options, stdin=urls)
    names = {"~a", "x/é", "a[1].jpg", "s", "a/%2E./b", "é☕"}
    expected = {name.rpartition("/")[2] for name in names}
    if layout == "mirror":
        expected = {f"{place}/{name}" for name in names}
    assert set(result.files) == expected


def moved_abroad(request: Request) -> list[Step]:
    moved = {
        "http://first.test/a": "http://Bücher.test/café".encode().decode("latin-1"),
        "http://first.test/b": "http://\xff.test/",
    }
    location = moved.get(request.target)
    return redirect(location) if location else ok()


@pytest.mark.parametrize("lane", LANES)
def test_redirect_to_a_name_outside_ascii(lane: str, tmp_path: Path) -> None:
    with Server(default=moved_abroad) as proxy:
        options = (*QUICK, "--lane", lane, "--proxy", proxy.url)
        result = download("-", tmp_path / "d", *options, stdin="http://first.test/a\nhttp://first.test/b\n")
        assert result.codes == {"b": "redirect-refused"}
        assert result.files == {"a": b"hello"}
        assert proxy.seen("http://xn--bcher-kva.test/caf%C3%A9")


@pytest.mark.parametrize("lane", LANES)
def test_redirect_that_does_not_say_where_to(lane: str, tmp_path: Path) -> None:
    with Server({"/a": status(302), "/b": status(308)}) as server:
        urls = f"{server.url}/a\n{server.url}/b\n"
        result = download("-", tmp_path / "d", *QUICK, "--lane", lane, stdin=urls)
    assert result.codes == {"a": "unexpected-status", "b": "unexpected-status"}
    assert result.failures["a"]["detail"] == "the server answered 302 without a Location"
