"""What a host, a list or a server can make take long does not hold a hub; ``conftest.py`` watches them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from harness import report_of
from servers import Server, ok

Run = Callable[..., CompletedProcess[str]]


def test_robots_txt_of_wildcards_and_long_urls(run_downloader: Run, tmp_path: Path) -> None:
    """A path would take seconds to be compared with 20,000 rules, one after the other."""
    rules = "\n".join(f"Disallow: /*b/a{number:04x}*z" for number in range(20_000))
    robots = ok(f"User-agent: *\nDisallow: /*no\n{rules}".encode())
    long = "ab/" * 9_000
    source = tmp_path / "list.csv"
    with Server({"/robots.txt": robots}, default=ok(b"x")) as server, Server(default=ok(b"y")) as other:
        rows = [f"{server.url}/{number}/{long},long{number}" for number in range(4)]
        rows += [f"{server.url}/no/{number}/{long},no{number}" for number in range(4)]
        rows += [f"{other.url}/{number},other{number}" for number in range(100)]
        source.write_text("\n".join(["url,name", *rows]))
        done = run_downloader(source, "-o", tmp_path / "dest", "--robots", "--workers", 1, "--json")
        assert server.count("/no/") == 0
    report = report_of(done)
    assert (report["stored"], report["failed_by_error"]) == (104, {"robots": 4}), done.stderr


def test_list_of_long_urls(run_downloader: Run, tmp_path: Path) -> None:
    """To make a name of one takes 10 ms, and there are 1,000 in a page."""
    source = tmp_path / "list.txt"
    source.write_text(
        "".join(f"http://127.0.0.1:9/{number}/{'a%C3%A9' * 9_000}\n" for number in range(150))
    )
    done = run_downloader(source, "-o", tmp_path / "dest", "--workers", 1, "--json")
    assert report_of(done)["failed_by_error"] == {"bad-name": 150}, done.stderr


def test_many_items_of_one_name(run_downloader: Run, tmp_path: Path) -> None:
    """Each is numbered, after some thirty queries."""
    source = tmp_path / "list.txt"
    with Server(default=ok(b"x"), record=False) as server:
        source.write_text("".join(f"{server.url}/{number}/same.jpg\n" for number in range(6_000)))
        options = ("--on-duplicate", "number", "--workers", 1, "--json", "--store", "null")
        done = run_downloader(source, "-o", tmp_path / "dest", *options)
    assert report_of(done)["stored"] == 6_000, done.stderr
