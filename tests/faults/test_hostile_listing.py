"""Listings that are wrong, cut or circular: the run reports what and where, and never omits names
silently.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest
from harness import slow_but
from servers import (
    CLOSE,
    HANG,
    RESET,
    Answer,
    Forever,
    Nth,
    Pause,
    Request,
    Result,
    Server,
    Step,
    download,
    listing,
    ok,
    status,
)
from servers.rows import HINTS_LAST, SWITCHED

QUICK = ("--deadline", "1s", "--read-timeout", "500ms", "--retries", "1", "--backoff", "50ms")
QUICK += ("--workers", "1")


def pages(**by_marker: Answer) -> dict[str, Answer]:
    """Return routes: the first page under ``first``, the others under their markers."""
    return {
        "/list" if marker == "first" else f"/list?next-marker={marker}": page
        for marker, page in by_marker.items()
    }


def run(server: Server, tmp_path: Path, *options: str) -> Result:
    return download(server.url, tmp_path / "d", *QUICK, *options)


BROKEN: dict[str, tuple[dict[str, Answer], str]] = {
    "marker of itself": (pages(first=listing("a", "m"), m=listing("b", "m")), "circle"),
    "circle of three": (
        pages(first=listing("a", "1"), **{n: listing("b", str(int(n) % 3 + 1)) for n in "123"}),
        "circle",
    ),
    "not JSON": (
        pages(first=listing("a", "p2"), p2=listing("b", "p3"), p3=ok(b'{"FileNames": ["c"')),
        "next-marker=p3",
    ),
    "HTML": (pages(first=listing("a", "p2"), p2=ok(b"<html>login</html>")), "next-marker=p2"),
    "nested": (pages(first=ok(b"[" * 100_000)), "is not valid JSON"),
    "no FileNames": (pages(first=listing("a", "p2"), p2=ok(b'{"Files": []}')), "next-marker=p2"),
    "a list": (pages(first=ok(b'["a"]')), "FileNames"),
    "a number": (pages(first=listing("a", "p2"), p2=listing(["b", 7])), "next-marker=p2"),
    "marker a number": (pages(first=ok(b'{"FileNames": ["a"], "NextMarker": 7}')), "marker"),
    "marker without measure": (pages(first=listing(["a"], "m" * 70_000_000)), "70,000,000 characters"),
    "500": (pages(first=listing("a", "p2"), p2=status(500)), "next-marker=p2"),
    "404": (pages(first=listing("a", "p2"), p2=status(404)), "http-404"),
    "cut": (
        pages(first=listing("a", "p2"), p2=[b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", CLOSE]),
        "truncated",
    ),
    "cut, with its length twice": (
        pages(
            first=listing("a", "p2"),
            p2=[b'HTTP/1.1 200 OK\r\nContent-Length: 99, 99\r\n\r\n{"FileNames": ["b"]}', CLOSE],
        ),
        "truncated",
    ),
    "endless": (
        pages(
            first=listing("a", "p2"),
            p2=[b'HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n{"', Forever(b"x", 0.1)],
        ),
        "timeout",
    ),
    "nonsense": (pages(first=listing("a", "p2"), p2=[b"SSH-2.0-OpenSSH_9.6\r\n", HANG]), "SSH-2.0"),
    "nonsense behind an interim response": (
        pages(first=listing("a", "p2"), p2=[HINTS_LAST, b"SSH-2.0-OpenSSH_9.6\r\n", HANG]),
        "SSH-2.0",
    ),
    "another protocol": (pages(first=listing("a", "p2"), p2=[SWITCHED, HANG]), "unexpected-status"),
    "immense": (
        pages(first=[b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n", CLOSE]),
        "too-large",
    ),
}


# Slow, since every check of a listing is in one place: tests/unit/test_core_listing.py has all cases.
NO_LISTING = ("HTML", "a list", "marker a number", "nonsense")


@pytest.mark.parametrize("what", slow_but([(each,) for each in BROKEN if each not in NO_LISTING], BROKEN))
def test_a_broken_listing_ends_the_run_and_is_named(what: str, tmp_path: Path) -> None:
    routes, text = BROKEN[what]
    with Server({"/get/a": ok(b"a"), "/get/b": ok(b"b"), **routes}) as server:
        result = run(server, tmp_path)
        assert server.count("/list") <= 12
    assert result.exit == 4
    assert not result.report["complete"]
    reason = result.report["stopped_by"]
    assert text in reason
    assert "\n" not in reason
    # What was listed before is still fetched, and is right.
    assert set(result.files) <= {"a", "b"}
    assert all(body.decode() == name for name, body in result.files.items())
    report = result.report
    assert report["listed"] == report["stored"] + report["skipped"]


def test_failing_page_is_retried_in_this_run_and_the_next(tmp_path: Path) -> None:
    routes = pages(
        first=listing(["a"], "p2"),
        p2=Nth(status(500), status(500), status(503, "Retry-After: 0"), listing(["b"])),
    )
    with Server({"/get/a": ok(b"a"), "/get/b": ok(b"b"), **routes}) as server:
        first = run(server, tmp_path)
        assert (first.exit, set(first.files), server.count("/list?")) == (4, {"a"}, 2)
        second = run(server, tmp_path)
        assert (second.exit, second.files) == (0, {"a": b"a", "b": b"b"})
        assert len(server.seen("/get/a")) == 1


def test_pages_without_names_and_odd_markers(tmp_path: Path) -> None:
    marker = "a&b=c%20d é+/?#"
    after = listing(["x"], "last", key="NextFile")
    routes: dict[str, Answer] = {
        "/list": lambda r: (
            {
                "": listing(["a"], "empty"),
                "next-marker=empty": listing([], marker),
                "next-marker=last": listing(["z"]),
            }.get(r.target.partition("?")[2])
            or (after if unquote(r.target.partition("=")[2]) == marker else status(400))
        ),
    }
    with Server(routes, default=ok(b"-")) as server:
        result = run(server, tmp_path)
        assert server.count("/list") == 4
    assert (result.exit, set(result.files)) == (0, {"a", "x", "z"})
    assert result.report["listed"] == 3


@pytest.mark.parametrize("path", ["list?dir=a b/&caf\u00e9", "/list?dir=a%20b/&caf%C3%A9&"])
@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_a_list_path_with_a_query_loses_no_page(path: str, lane: str, tmp_path: Path) -> None:
    query = "dir=a%20b/&caf%C3%A9" + "&" * path.endswith("&")
    joint = "" if path.endswith("&") else "&"
    routes: dict[str, Answer] = {
        f"/p/list?{query}": listing(["a"], "m&2"),
        f"/p/list?{query}{joint}next-marker=m%262": listing(["b"], "m3"),
        f"/p/list?{query}{joint}next-marker=m3": listing(["c"]),
    }
    with Server(routes, default=lambda r: ok(b"-") if "/get/" in r.target else status(404)) as server:
        result = download(f"{server.url}/p", tmp_path / "d", "--list-path", path, "--lane", lane)
    assert (result.exit, set(result.files), result.report["listed"]) == (0, {"a", "b", "c"}, 3)


def test_a_page_of_a_list_path_with_a_query_is_named_without_its_secrets(tmp_path: Path) -> None:
    routes: dict[str, Answer] = {
        "/list?token=SESAME&dir=x": listing(["a"], "2"),
        "/list?token=SESAME&dir=x&next-marker=2": ok(b"no listing"),
    }
    with Server(routes, default=ok(b"-")) as server:
        result = download(server.url, tmp_path / "d", "--list-path", "list?token=SESAME&dir=x")
    assert (result.exit, set(result.files)) == (4, {"a"})
    assert "page 2 of the listing, " in result.stderr
    assert "/list?token=***&dir=x&next-marker=2, is not valid JSON" in result.stderr
    assert "SESAME" not in result.stderr + json.dumps(result.report)


def test_listing_without_names(tmp_path: Path) -> None:
    with Server({"/list": listing([])}) as server:
        result = run(server, tmp_path)
    assert (result.exit, result.report["listed"], result.files) == (0, 0, {})


def test_name_listed_twice(tmp_path: Path) -> None:
    same, other = ok(b"same"), Nth(ok(b"one"), ok(b"two"))
    routes = pages(first=listing(["a", "a", "b"], "p2"), p2=listing(["a", "b", "c"]))
    with Server({"/get/a": same, "/get/b": other, "/get/c": ok(b"c"), **routes}) as server:
        result = run(server, tmp_path)
    # The same bytes are stored already; other bytes never replace a file of the same name.
    assert result.exit == 1
    assert result.codes == {"b": "name-taken"}
    assert result.files["a"] == b"same"
    assert result.files["b"] in (b"one", b"two")
    report = result.report
    assert (report["listed"], report["stored"], report["skipped"], report["failed"]) == (6, 3, 2, 1)


def test_page_changed_between_runs_is_listed_again(tmp_path: Path) -> None:
    """The first run ended within the page: its position is found by the names, not by their number."""
    before, after = list("abcdef"), ["new", *"abcdef"]
    routes: dict[str, Answer] = {"/list": Nth(listing(before), listing(after))}
    with Server(routes, default=ok(b"-")) as server:
        first = run(server, tmp_path, "--limit", "3")
        assert (first.exit, set(first.files)) == (0, {"a", "b", "c"})
        second = run(server, tmp_path)
    assert (second.exit, set(second.files)) == (0, set(after))


def test_a_listing_is_read_no_faster_than_its_files_are_fetched(tmp_path: Path) -> None:
    """A page is requested only when its files soon will be: otherwise its names would fill the memory."""
    pages, names = 30, 60
    ahead: list[int] = []

    def page(request: Request) -> Sequence[Step]:
        number = int(request.target.partition("=")[2] or 0)
        ahead.append(number - server.count("/get/") // names)
        return listing([f"{number}-{n}" for n in range(names)], str(number + 1) * (number + 1 < pages))

    with Server({"/list": page}, default=[Pause(0.001), *ok(b"-")]) as server:
        result = run(server, tmp_path, "--connections", "1", "--pipeline", "off")
    assert (result.exit, result.report["stored"]) == (0, pages * names)
    # Five pages for the connection, and the reserve of the feeder and the supervisor.
    assert len(ahead) == pages
    assert max(ahead) <= 16


def test_names_with_lone_surrogates(tmp_path: Path) -> None:
    page = json.dumps({"FileNames": ["good", "\ud800", "x\udfffy"]}).encode()
    with Server({"/list": ok(page)}, default=ok(b"-")) as server:
        result = run(server, tmp_path)
        assert result.report["listed"] == 3
        assert result.report["stored"] + result.report["failed"] == 3
        assert set(result.codes.values()) <= {"bad-name"}
        assert "good" in result.files
        assert len(server.requests) == 1 + result.report["stored"]


SLIPS: dict[str, Answer] = {
    "empty": ok(b""),
    "HTML": ok(b"<html>try again</html>"),
    "cut and said to be whole": ok(b'{"FileNames": ["b"'),
    "cut by the close, in HTTP/1.0": [b'HTTP/1.0 200 OK\r\n\r\n{"FileNames": ["b"', CLOSE],
    "compressed, unasked": ok(gzip.compress(b'{"FileNames": ["b"]}'), "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS)
def test_a_page_that_fails_once_is_requested_again(slip: Answer, tmp_path: Path) -> None:
    """A run of a night must not end with one answer of a proxy."""
    routes = pages(first=listing("a", "p2"), p2=Nth(slip, listing("b", "p3")), p3=listing("c", ""))
    with Server(routes, default=ok(b"-")) as server:
        result = run(server, tmp_path)
        # The first page says whether SOURCE is a server at all, at once.
        server.routes["/list"] = slip
        fresh = download(server.url, tmp_path / "fresh", *QUICK, "--retries", "50")
    assert (result.exit, sorted(result.files)) == (0, ["a", "b", "c"])
    assert (fresh.exit, fresh.files) == (4, {})


@pytest.mark.parametrize("layout", ["flat", "mirror"])
def test_very_long_names(layout: str, tmp_path: Path) -> None:
    """The names do not fit into one message between processes; the next run recognizes them."""
    long = ["n" * 70_000_000, "a/" * 2_000_000, "é" * 5_000]
    routes: dict[str, Answer] = {"/list": listing(["a", *long, "b"]), "/get/b": Nth(status(404), ok(b"b"))}
    with Server(routes, default=ok(b"-")) as server:
        first = run(server, tmp_path, "--layout", layout)
        second = run(server, tmp_path, "--layout", layout)
    assert (first.exit, first.report["stored"], first.report["failed"]) == (1, 1, 4)
    assert (second.exit, second.report["stored"], second.report["failed"]) == (1, 1, 3)
    assert set(second.codes.values()) == {"bad-name"}


def test_a_large_page(tmp_path: Path) -> None:
    names = [f"{n:05}{'x' * 100}" for n in range(20_000)]
    with Server({"/list": listing(names)}, default=ok(b"-")) as server:
        result = run(server, tmp_path, "--limit", "50", "--store", "null")
        assert server.count("/get/") == 50
    assert (result.exit, result.report["stored"]) == (0, 50)


def page_of(names: list[str], following: str) -> bytes:
    return json.dumps({"FileNames": names, "NextMarker": following}).encode()


def at_once(steps: list[Step]) -> list[Step]:
    """Return the bytes of ``steps`` as one, so that none can be sent when another request has arrived."""
    return [b"".join(step for step in steps if isinstance(step, bytes))]


def one_after_another(body: bytes) -> bytes:
    pieces = [body[at : at + 100] for at in range(0, len(body), 100)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


# Slow: the first case is the second without its announcement, and another attempt changes nothing.
ALIKE = (
    *("closed behind each", "failed once", "to the end of the connection"),
    "with nonsense behind",
)
SHAPES: dict[str, Callable[[bytes], Answer]] = {
    "closed behind each": lambda body: [*ok(body), CLOSE],
    "said to be closed": lambda body: [*ok(body, "Connection: close"), CLOSE],
    "reset behind each": lambda body: [*ok(body), RESET],
    "chunked": lambda body: [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + one_after_another(body)
    ],
    "to the end of the connection": lambda body: [b"HTTP/1.0 200 OK\r\n\r\n" + body, CLOSE],
    "with a cookie": lambda body: ok(body, "Set-Cookie: a=b"),
    "with another answer behind": lambda body: at_once([*ok(body), *listing(["nobody asked for this"])]),
    "with nonsense behind": lambda body: at_once([*ok(body), b"nonsense"]),
    "behind interim ones": lambda body: at_once([HINTS_LAST, b"HTTP/1.0 100 Continue\r\n\r\n", *ok(body)]),
    "large": lambda body: ok(body[:1] + b" " * 300_000 + body[1:]),
    "cut once": lambda body: Nth([b"HTTP/1.1 200 OK\r\nContent-Le", CLOSE], ok(body)),
    "failed once": lambda body: Nth(status(503), ok(body)),
}


@pytest.mark.parametrize("shape", slow_but([(each,) for each in SHAPES if each not in ALIKE], SHAPES))
def test_transfer_framing_does_not_change_a_listing(shape: str, tmp_path: Path) -> None:
    names = [[f"f{page}-{index}" for index in range(20)] for page in range(6)]
    bodies = [page_of(each, str(page + 1) if page < 5 else "") for page, each in enumerate(names)]
    routes = {
        f"/list?next-marker={page}" if page else "/list": SHAPES[shape](body)
        for page, body in enumerate(bodies)
    }
    with Server(routes, default=ok(b"-")) as server:
        result = run(server, tmp_path, "--max-size", "1000")
    assert (result.exit, set(result.files)) == (0, {name for each in names for name in each})
    assert result.report["listed"] == 120
