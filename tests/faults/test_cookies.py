"""Which hosts the cookies of a server go to, and what becomes of those that the user gave."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from _pytest.mark.structures import ParameterSet
from servers import (
    Certificates,
    Pause,
    Request,
    Server,
    Step,
    Until,
    download,
    listing,
    ok,
    redirect,
    status,
)
from servers.names import name_server

QUICK = ("--deadline", "5s", "--retries", "0", "--workers", "1", "--connections", "1")
LANES = ("auto", "requests")
A, B, TLS, PORT = "http://a.site.test", "http://b.site.test", "https://a.site.test", "http://a.site.test+"
# Where it is set, with what, whereto that redirects, and whether it is sent there.
CASES = {
    "sibling": (A, "Domain=site.test", B, True),
    "dotted": (A, "Domain=.Site.Test", B, True),
    "back": (A, "Domain=a.site.test", A, True),
    "port": (A, "", PORT, True),
    "tls": (A, "", TLS, True),
    "dot": (A, "", "http://A.site.test.", True),
    "secure": (A, "Secure", TLS, True),
    "clear": (A, "Secure", PORT, False),
    "no-domain": (A, "", B, False),
    "below": ("http://site.test", "", A, False),
    "path": (A, "Path=/elsewhere", A, False),
    "over": (A, "Max-Age=0", A, False),
    "stranger": ("http://a.other.test", "Domain=site.test", B, False),
    "suffix": (A, "Domain=test", B, False),
    "suffixes": ("http://a.co.uk", "Domain=co.uk", "http://b.co.uk", False),
    "address": ("http://127.0.0.1", "Domain=127.0.0.1", "http://127.0.0.1+", True),
    "part": ("http://127.0.0.1", "Domain=0.0.1", "http://127.0.0.1+", False),
    "label": ("http://intranet", "Domain=intranet", "http://intranet+", True),
    "loopback": ("http://localhost", "Secure", "http://localhost+", True),
    "empty": (A, "Domain=", PORT, True),
    "large": (A, f"X={'x' * 10_000}", A, False),
}


# The attributes of a cookie, and whether it is sent back, beside where it was set; see also
# tests/unit/test_core_set_cookie.py.
ATTRIBUTES = {
    'Max-Age="3600"': True,
    "Max-Age=1h": True,
    "Max-Age=3600.0": True,
    "Max-Age": True,
    "Max-Age=-": True,
    "Max-Age=99999999999999999999": True,
    "Max-Age=3600; Max-Age=0": False,
    "Expires=tomorrow": True,
    "Expires": True,
    "Expires=Wed, 01 Jan 2031 00:00:00 EST": True,
    "Expires=Thu Jan  1 00:00:00 1970": False,
    "Expires=Mon, 01 Jan 1601 00:00:00 GMT": False,
    'Path="/"': True,
    "Path=elsewhere": True,
    "Path": True,
    "Path=/elsewhere; Path=/": True,
    "Path=/; Path=/elsewhere": False,
    "Path=/set/": True,
    "Path=/se": False,
    "Domain": True,
    "Domain=": True,
    "Domain=.": True,
    "Domain=other.test; Domain=127.0.0.1": True,
    'Domain="127.0.0.1"': False,
    'Port="80,8080"': True,
    "Port": True,
    "Version=2": True,
    "Version=x": True,
    "HttpOnly=yes; Discard=no; Comment; Partitioned": True,
    "Secure=no": True,  # it is sent to 127.0.0.1, as with curl
    "X=\x1f": False,
}
VALUES = ("", '"a, b"', "a=b==", '{"a":1}', "\xc3\xa0")  # the last is à in UTF-8


@contextmanager
def site(tmp_path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Serve every name on two ports, and with TLS; yield the first port, and the options for it."""

    def answer(request: Request) -> list[Step]:
        place, _, case = request.target[1:].partition("/")
        if place == "there":
            return ok(b"sent" if f"{case}=1" in (request.header("Cookie") or "") else b"not")
        _, attributes, target, _ = CASES[case]
        path = "" if "Path" in attributes else "; Path=/"
        return status(
            302, f"Location: {at(target)}/there/{case}", f"Set-Cookie: {case}=1; {attributes}{path}"
        )

    def at(where: str) -> str:
        server = tls if where.startswith("https:") else other if where.endswith("+") else plain
        return f"{where.rstrip('+')}:{server.port}"

    certificates = Certificates(tmp_path)
    context = certificates.context(hosts=["a.site.test"])
    plain, other, tls = Server(default=answer), Server(default=answer), Server(default=answer, tls=context)
    with plain, other, tls, name_server(["127.0.0.1"]) as names:
        yield plain.port, ("--dns-server", names, "--cacert", str(certificates.ca))


def each_way(codes: Sequence[int]) -> list[ParameterSet]:
    """Return each code with each way to fetch; slow where another code shows the same of that way."""
    return [
        pytest.param(
            code,
            how,
            marks=pytest.mark.slow if how and code not in (403, 503) else (),
            id="-".join((str(code), *how)),
        )
        for code in codes
        for how in ((), ("--pipeline", "off"), ("--lane", "requests"))
    ]


@pytest.mark.parametrize("lane", LANES)
def test_cookies_go_where_they_are_for(lane: str, tmp_path: Path) -> None:
    with site(tmp_path) as (port, options):
        urls = [f"{where}:{port}/set/{case}" for case, (where, _, _, _) in CASES.items()]
        result = download("-", tmp_path / "d", *QUICK, *options, "--lane", lane, stdin="\n".join(urls))
        assert result.codes == {}
        assert {case: body == b"sent" for case, body in result.files.items()} == {
            case: sent for case, (_, _, _, sent) in CASES.items()
        }


# What a server answers without its cookies, and what it sets with that.
REFUSALS = {
    "401": (401, ()),
    "403": (403, ()),
    "404": (404, ()),
    "429": (429, ()),
    "500": (500, ()),
    "503": (503, ()),
    "403-pause": (403, ("Retry-After: 1",)),
    "503-pause": (503, ("Retry-After: 1",)),
}


@pytest.mark.parametrize("how", [(), ("--pipeline", "8"), ("--lane", "requests")], ids="-".join)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_sets_the_cookies_that_let_in(refusal: str, how: tuple[str, ...], tmp_path: Path) -> None:
    """All its cookies are kept, and what was refused without them is requested again at no charge."""
    code, more = REFUSALS[refusal]

    def answer(request: Request) -> list[Step]:
        if request.header("Cookie") == "a=1; b=2":
            return ok(request.target.encode())
        return status(code, "Set-Cookie: a=1; Path=/", "Set-Cookie: b=2; Path=/", *more, body=b"no")

    with Server(default=answer) as server:
        urls = [f"{server.url}/{number}" for number in range(200)]
        result = download("-", tmp_path / "d", "--retries", "0", *how, stdin="\n".join(urls))
        assert (result.exit, result.codes) == (0, {}), result.stderr
        assert result.files == {str(number): f"/{number}".encode() for number in range(200)}
        # By the pipelined client, perhaps for a recheck, by the other one, and with the cookies.
        assert max(server.count(f"/{number}") for number in range(100, 200)) <= 6


NOT_KEPT = ("Max-Age=0", "Domain=other.test")


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("attributes", ["Path=/", "Path=/elsewhere", "Max-Age=1; Path=/", *NOT_KEPT])
@pytest.mark.parametrize("code", [403, 404])
def test_what_stays_refused_with_a_cookie_fails(
    attributes: str, code: int, lane: str, tmp_path: Path
) -> None:
    """Refusals set a cookie each time, kept or not; the other files are stored."""

    def answer(request: Request) -> list[Step]:
        if int(request.target[1:]) % 4:
            return ok(b"body")
        return status(
            code, f"Set-Cookie: s={request.at}; {attributes}", "Connection: keep-alive", body=b"no"
        )

    # If a refusal comes first, its cookie may be what lets the others in: all go with it then.
    order = sorted(range(400), key=lambda number: number < 100 and number % 4 == 0)
    with Server(default=answer) as server:
        urls = [f"{server.url}/{number}" for number in order]
        result = download(
            "-", tmp_path / "d", "--workers", "1", "--per-host", "8", "--lane", lane, stdin="\n".join(urls)
        )
        assert (result.exit, len(result.files)) == (1, 300)
        assert result.codes == {str(number): f"http-{code}" for number in range(0, 400, 4)}
        if lane == "auto" and (code == 404 or attributes in NOT_KEPT):  # it slows no other file
            assert result.report["lanes"]["requests"] < 100
        attempts = [failure["attempts"] for failure in result.failures.values()]
        assert max(attempts) <= 5
        assert (
            sum(each > 2 for each in attempts) <= 30
        )  # then it is known that another value lets nobody in
        # But for what was in flight when the first of them came, each is requested once.
        refused = [
            server.count(f"/{number}") for number in range(0, 400, 4) if len(server.seen(f"/{number}")) > 1
        ]
        assert len(refused) < 100


@pytest.mark.parametrize(("code", "how"), each_way([401, 403, 404, 410]))
@pytest.mark.parametrize("kind", ["sessions that end", "forbidden pages"])
def test_a_refusal_that_deletes_a_cookie(
    kind: str, code: int, how: tuple[str, ...], tmp_path: Path
) -> None:
    """A later one that sets the same cookie lets in: sessions are ended like that."""
    given, uses = itertools.count(1), {}  # type: itertools.count[int], dict[str, int]
    forbidden = range(10) if kind == "forbidden pages" else range(0)
    delete = "Set-Cookie: s=; Path=/; Max-Age=0"

    def answer(request: Request) -> list[Step]:
        sent = (request.header("Cookie") or "").partition("s=")[2]
        if int(request.target[1:]) in forbidden:
            return status(403, delete, "Connection: keep-alive", body=b"no")
        if sent in uses and (forbidden or uses[sent] < 40):
            uses[sent] += 1
            return ok(b"body")
        if sent and not forbidden:
            return status(code, delete, "Connection: keep-alive", body=b"no")
        session = f"v{next(given)}"
        uses[session] = 0
        return status(code, f"Set-Cookie: s={session}; Path=/", "Connection: keep-alive", body=b"no")

    with Server(default=answer) as server:
        urls = [f"{server.url}/{number}" for number in range(400)]
        command = ("--workers", "1", "--per-host", "8", *how)
        result = download("-", tmp_path / "d", *command, stdin="\n".join(urls))
        assert result.codes == {str(number): "http-403" for number in forbidden}
        assert len(result.files) == 400 - len(forbidden)


def _wall(cookies: list[str], code: int, at: dict[str, int]) -> Callable[[Request], list[Step]]:
    """Return a site that lets in who has all ``cookies``, and gives the next one with each refusal.

    ``at``: how many requests there were of each target.
    """

    def answer(request: Request) -> list[Step]:
        sent = set((request.header("Cookie") or "").split("; "))
        at[request.target] = at.get(request.target, 0) + 1
        # Of a name that several have, only the last one counts.
        have = max((number for number, each in enumerate(cookies, 1) if each in sent), default=0)
        if have == len(cookies):
            return ok(request.target.encode())
        return status(code, f"Set-Cookie: {cookies[have]}; Path=/", "Connection: keep-alive", body=b"no")

    return answer


@pytest.mark.parametrize(("code", "how"), each_way([401, 403, 404, 410, 429, 503]))
@pytest.mark.parametrize("cookies", ["a=1 b=2", "a=1 b=2 c=3", "step=1 step=2 step=3"])
def test_a_wall_of_several_cookies(cookies: str, code: int, how: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever is in flight when the next one comes is requested again at no charge."""
    at: dict[str, int] = {}
    with Server(default=_wall(cookies.split(), code, at)) as server:
        urls = [f"{server.url}/{number}" for number in range(600)]
        command = ("--retries", "0", "--backoff", "50ms", *how)
        result = download("-", tmp_path / "d", *command, stdin="\n".join(urls))
        assert (result.exit, result.codes) == (0, {}), result.stderr
        assert result.files == {str(number): f"/{number}".encode() for number in range(600)}
        # By the pipelined client, twice, and by the other one: without a cookie, and after each.
        assert max(at.values()) <= 10


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("code", [403, 429, 503])
def test_a_wall_that_asks_to_wait(code: int, lane: str, tmp_path: Path) -> None:
    """What is sent after a pause is one request to get the cookie, then it goes with each of them."""
    refused: list[float] = []

    def answer(request: Request) -> list[Step]:
        if request.header("Cookie") == "ok=1":
            return ok(b"x")
        refused.append(request.at)
        return status(code, "Set-Cookie: ok=1; Path=/", "Retry-After: 1")

    with Server(default=answer) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(300))
        result = download("-", tmp_path / "d", "--workers", "1", "--lane", lane, stdin=listed)
    assert (result.exit, len(result.files)) == (0, 300)
    assert len([at for at in refused if at - refused[0] > 0.9]) <= 1


@pytest.mark.parametrize("lane", LANES)
def test_a_wall_in_front_of_each_mirror(lane: str, tmp_path: Path) -> None:
    """Each has cookies of its own."""
    at: dict[str, int] = {}
    answers = [_wall([f"{each}=1", f"{each}=2", f"{each}=3"], 403, at) for each in "ab"]

    def failing(request: Request) -> list[Step]:
        found = answers[0](request)
        return status(500) if found[0].startswith(b"HTTP/1.1 200") else found

    with Server(default=failing) as first, Server(default=answers[1]) as second:
        rows = [
            f"http://localhost:{first.port}/{number}\thttp://127.0.0.1:{second.port}/{number}"
            for number in range(100)
        ]
        command = ("--list-format", "aria2", "--retries", "0", "--lane", lane)
        result = download("-", tmp_path / "d", *command, stdin="\n".join(rows))
        assert (result.exit, result.codes) == (0, {}), result.stderr


def test_a_cookie_that_others_delete_before_each_attempt(tmp_path: Path) -> None:
    """Six times: the body of each refusal, which sets the cookie, ends after another response came."""
    refused = [Event() for _ in range(6)]
    at, others = itertools.count(), itertools.count()

    def answer(request: Request) -> list[Step]:
        if request.target != "/page":
            number = next(others)
            delete = ok(b"body", "Set-Cookie: s=; Path=/; Max-Age=0")
            return [Until(refused[number]), Pause(0.1), *delete] if number < len(refused) else ok(b"body")
        if "s=" in (request.header("Cookie") or ""):
            return ok(b"in")
        times = next(at)
        if times >= len(refused):
            return status(403, "Set-Cookie: s=1; Path=/", "Connection: keep-alive", body=b"no")
        refused[times].set()
        head = status(403, "Set-Cookie: s=1; Path=/", "Connection: keep-alive", "Content-Length: 2")
        return [head[0].replace(b"Content-Length: 0\r\n", b""), Pause(0.3), b"no"]

    with Server(default=answer) as server:
        urls = [f"{server.url}/page", *(f"{server.url}/{number}" for number in range(12))]
        options = ("--workers", "1", "--per-host", "2", "--retries", "0", "--lane", "requests")
        result = download("-", tmp_path / "d", *options, "--deadline", "5s", stdin="\n".join(urls))
    assert (result.exit, result.codes) == (0, {}), result.stderr
    assert result.files["page"] == b"in"
    assert next(at) >= 6


@pytest.mark.parametrize("how", [(), ("--pipeline", "off"), ("--lane", "requests")], ids="-".join)
@pytest.mark.parametrize("retries", [0, 5])
def test_sessions_that_end_beside_missing_pages(retries: int, how: tuple[str, ...], tmp_path: Path) -> None:
    """Each 404 renews some cookie, in vain; each 403 gives a session that lets in fifty times."""
    used: Counter[str] = Counter()
    counted, missing = itertools.count(), range(3, 1000, 10)
    at: Counter[str] = Counter()

    def answer(request: Request) -> list[Step]:
        at[request.target] += 1
        cookies = dict(each.split("=") for each in (request.header("Cookie") or "=").split("; "))
        renewed = f"Set-Cookie: csrf={next(counted)}; Path=/"
        if int(request.target[1:]) in missing:
            return status(404, renewed, "Connection: keep-alive", body=b"no")
        session = cookies.get("s", "")
        if not session or used[session] >= 50:
            begun = f"Set-Cookie: s={next(counted)}; Path=/"
            return status(403, renewed, begun, "Connection: keep-alive", body=b"no")
        used[session] += 1
        return ok(request.target.encode())

    with Server(default=answer) as server:
        urls = [f"{server.url}/{number}" for number in range(1000)]
        command = ("--retries", str(retries), "--backoff", "50ms", *how)
        result = download("-", tmp_path / "d", *command, stdin="\n".join(urls))
    assert result.codes == {str(number): "http-404" for number in missing}, result.stderr
    assert len(result.files) == 900
    # What the missing pages do is learned: most are requested once, or by both clients.
    assert sorted(at[f"/{number}"] for number in missing)[70] <= 2


ENDLESS = {"names": "c{at}=1", "values": "c=1{at}", "both": "c{few}={at}"}


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(("code", "retries"), [(403, 0), (404, 2), (503, 0), (503, 2)])
@pytest.mark.parametrize("form", ENDLESS)
def test_a_wall_without_end(form: str, code: int, retries: int, lane: str, tmp_path: Path) -> None:
    """Each refusal sets another cookie: every file fails after a few requests."""
    counted = itertools.count()

    def answer(request: Request) -> list[Step]:
        at = next(counted)
        cookie = ENDLESS[form].format(at=at, few=at % 3)
        return status(code, f"Set-Cookie: {cookie}; Path=/", "Connection: keep-alive", body=b"no")

    with Server(default=answer) as server:
        urls = [f"{server.url}/{number}" for number in range(60)]
        command = ("--retries", str(retries), "--backoff", "10ms", "--lane", lane, "--workers", "1")
        result = download("-", tmp_path / "d", *command, stdin="\n".join(urls))
        assert (result.exit, result.files) == (1, {}), result.stderr
        assert set(result.codes.values()) == {f"http-{code}"}
        assert len(result.codes) == 60
        charged = 1 + (retries if code == 503 else 0)
        assert {each["attempts"] for each in result.failures.values()} <= set(range(1, charged + 5))
        if form != "both" and code != 503:  # what is the rule of a site, as for its sessions, is learned
            late = [each["attempts"] for number, each in result.failures.items() if int(number) >= 48]
            assert set(late) <= {1, 2}


@pytest.mark.parametrize("lane", LANES)
def test_a_listing_that_is_refused_without_a_cookie(lane: str, tmp_path: Path) -> None:
    def page(request: Request) -> list[Step]:
        if request.header("Cookie") == "a=1; b=2":
            return listing(["x"])
        return status(403, "Set-Cookie: a=1; Path=/", "Set-Cookie: b=2; Path=/")

    with Server({"/list": page, "/get/x": ok(b"x")}) as server:
        result = download(server.url, tmp_path / "d", "--retries", "0", "--lane", lane)
        assert (result.exit, result.files) == (0, {"x": b"x"}), result.stderr
        assert server.count("/list") <= 3


@pytest.mark.parametrize("lane", LANES)
def test_a_cookie_that_came_from_another_port_while_a_refusal_was_under_way(
    lane: str, tmp_path: Path
) -> None:
    came = Event()

    def login(request: Request) -> list[Step]:
        if request.header("Cookie"):
            came.set()
            return ok(b"in")
        return ok(b"in", "Set-Cookie: a=1; Path=/")

    def answer(request: Request) -> list[Step]:
        return ok(b"in") if request.header("Cookie") == "a=1" else [Until(came), *status(403)]

    with Server(default=answer) as server, Server(default=login) as other:
        urls = [f"{server.url}/{number}" for number in range(8)]
        urls += [f"{other.url}/login{number}" for number in range(100)]
        result = download(
            "-", tmp_path / "d", "--retries", "0", "--workers", "1", "--lane", lane, stdin="\n".join(urls)
        )
        assert (result.exit, result.codes) == (0, {}), result.stderr


@pytest.mark.parametrize("lane", LANES)
def test_cookies_are_read_by_rfc_6265(lane: str, tmp_path: Path) -> None:
    """Whatever http.cookiejar takes for them, which would drop some, and cut values."""
    fields = [f"v; {each}" for each in ATTRIBUTES] + list(VALUES)
    expected = [("v" if sent else "not") for sent in ATTRIBUTES.values()] + list(VALUES)

    def answer(request: Request) -> list[Step]:
        *_, place, number = request.target.split("/")
        if place == "there":
            pairs = (request.header("Cookie") or "").split("; ")
            values = dict(pair.split("=", 1) for pair in pairs if pair)
            return ok(values.get(f"c{number}", "not").encode("latin-1"))
        field = f"Set-Cookie: c{number}={fields[int(number)]}"
        return status(302, f"Location: /set/there/{number}", field)

    with Server(default=answer) as server:
        urls = [f"{server.url}/set/{number}" for number in range(len(fields))]
        result = download("-", tmp_path / "d", *QUICK, "--lane", lane, stdin="\n".join(urls))
    assert (result.codes, "Traceback" in result.stderr) == ({}, False)
    found = [result.files[str(number)].decode("latin-1") for number in range(len(fields))]
    assert dict(zip(fields, found, strict=True)) == dict(zip(fields, expected, strict=True))


@pytest.mark.parametrize("lane", LANES)
def test_cookies_of_the_user_and_of_the_server_are_one_line(lane: str, tmp_path: Path) -> None:
    def answer(request: Request) -> list[Step]:
        if "seen=1" in (request.header("Cookie") or ""):
            return ok(b"in")
        if request.host == "127.0.0.2":
            return status(302, f"Location: {request.target}", "Set-Cookie: seen=1; Path=/")
        cookies = "Set-Cookie: seen=1; Path=/", "Set-Cookie: s=3; Path=/"
        return status(302, f"Location: {request.target}", *cookies)

    source = tmp_path / "list.jsonl"
    with Server(default=answer) as server, Server(default=answer, host="127.0.0.2") as elsewhere:
        server.routes["/leave"] = redirect(f"{elsewhere.url}/x")
        rows = [{"url": f"{server.url}/leave"}, {"url": f"{server.url}/a"}]
        rows.append({"url": f"{server.url}/b", "headers": {"cookie": "mine=5; s=6"}})
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = ("-H", "Cookie: s=1; t=2", "-H", "Cookie: u=4;", "--header-column", "headers")
        result = download(str(source), tmp_path / "d", *QUICK, *given, "--lane", lane)
        assert (result.exit, set(result.files)) == (0, {"leave", "a", "b"}), result.stderr
        sent = [request.header("Cookie") for request in server.seen("/a")]
        assert set(sent) == {"s=1; t=2; u=4;", "t=2; u=4; seen=1; s=3"}
        assert [request.header("Cookie") for request in server.seen("/b")] == ["mine=5; seen=1; s=3"]
        assert {request.header("Cookie") for request in elsewhere.requests} == {None, "seen=1"}
        assert not re.search("mine|seen=", result.stderr + json.dumps(result.report))
