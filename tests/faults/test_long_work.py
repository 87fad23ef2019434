"""What a host, a list or a server can make take long does not hold a hub; ``conftest.py`` watches them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from harness import ROOT, environment, report_of
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


def long_urls(count: int) -> str:
    """Return a list of URLs that take 10 ms each to be given names; a page has 150 of them."""
    return "".join(f"http://127.0.0.1:9/{number}/{'a%C3%A9' * 9_000}\n" for number in range(count))


def test_list_of_long_urls(run_downloader: Run, tmp_path: Path) -> None:
    """On standard input, which is read in a process that has a hub."""
    argv = ("-", "-o", tmp_path / "dest", "--workers", 1, "--json")
    done = run_downloader(*argv, input=long_urls(150))
    assert report_of(done)["failed_by_error"] == {"bad-name": 150}, done.stderr


# Forks the feeder of a list, which may be silent for 0.1 s, and prints the messages with its first batch.
_FEEDS = """
import json, sys
from multiprocessing.connection import wait
from types import SimpleNamespace
from downloader.config.config import Config
from downloader.core.ownership import Rules
from downloader.engine.children import feeder_main
from downloader.feeder import main
from downloader.messages import Batch, Continue, Credit
from downloader.process.spawn import fork

main._BEAT_EVERY = 0.1
destination = SimpleNamespace(name_key=b"", journal=None, rules=Rules())
child = fork(feeder_main(Config(source=sys.argv[1], output="out"), destination), plain=True)
child.link.send(Credit(9))
child.link.send(Continue(b"", 0, 0))
kinds = []
while "Batch" not in kinds:
    wait([child.link])
    messages, is_open = child.link.receive()
    kinds += [type(message).__name__ for message in messages]
    assert is_open, kinds
print(json.dumps(kinds))
"""


def test_list_of_long_urls_in_a_process_without_a_hub(tmp_path: Path) -> None:
    source = tmp_path / "list.txt"
    source.write_text(long_urls(100))
    argv = [sys.executable, "-c", _FEEDS, source]
    done = subprocess.run(argv, capture_output=True, cwd=ROOT, env=environment(), check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Heartbeat" in json.loads(done.stdout)


def test_many_items_of_one_name(run_downloader: Run, tmp_path: Path) -> None:
    """Each is numbered, after some thirty queries."""
    with Server(default=ok(b"x"), record=False) as server:
        urls = "".join(f"{server.url}/{number}/same.jpg\n" for number in range(6_000))
        options = ("--on-duplicate", "number", "--workers", 1, "--json", "--store", "null")
        done = run_downloader("-", "-o", tmp_path / "dest", *options, input=urls)
    assert report_of(done)["stored"] == 6_000, done.stderr
