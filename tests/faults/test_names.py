"""Hosts that are dead in every way, among ones that live: names, refused and unanswered connections."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from harness import Job, run_behind_mount
from servers.answers import ok
from servers.command import download
from servers.names import name_server
from servers.raw import Server

from benchmarks.openweb.names import Kind, host, own_addresses
from benchmarks.openweb.origin import Dns, dns_server
from benchmarks.openweb.void import void
from benchmarks.running import cores
from downloader.config.config import Config
from downloader.errors import ConfigError

QUICK = ("--workers", "1", "--backoff", "50ms", "--retries", "2")


@dataclass(frozen=True)
class Web:
    """Hosts of all kinds with one port, and the DNS server that has their names."""

    port: int
    dns: Dns

    @property
    def server(self) -> str:
        """The value of --dns-server."""
        return f"{self.dns.address}:{self.dns.port}"

    def urls(self, kind: Kind, hosts: int, files: int) -> list[str]:
        return [
            f"http://{host(kind, each)}:{self.port}/{kind.value}{each}-{n}"
            for n in range(files)
            for each in range(hosts)
        ]


@contextlib.contextmanager
def hosts() -> Iterator[Web]:
    """Run the hosts, and the DNS server, whose counts are there at the end."""
    addresses = own_addresses()
    with Server(default=lambda request: ok(request.target.encode()), host=addresses.live) as server:
        where = cores("origin", "shared")
        with void(addresses.void, server.port), dns_server(addresses, where, port=0, delay_ms=1) as dns:
            yield Web(server.port, dns)


@pytest.fixture
def web() -> Iterator[Web]:
    with hosts() as running:
        yield running


def test_each_dead_host_fails_with_its_code_and_every_living_one_is_stored(
    web: Web, tmp_path: Path
) -> None:
    dead = {Kind.NX: "dns", Kind.SILENT: "dns", Kind.REFUSE: "connect", Kind.VOID: "connect-timeout"}
    listed = [url for kind in Kind for url in web.urls(kind, 12, 3)]
    options = ("--connections", "8", "--connect-timeout", "3s", "--dns-server", web.server)
    result = download("-", tmp_path / "d", *QUICK, *options, stdin="\n".join(listed))
    assert result.exit == 1
    expected = {
        f"{kind.value}{each}-{n}": code
        for kind, code in dead.items()
        for each in range(12)
        for n in range(3)
    }
    assert result.codes == expected
    alive = {
        f"{kind.value}{each}-{n}" for kind in Kind if kind.serves for each in range(12) for n in range(3)
    }
    assert {name: body.decode() for name, body in result.files.items()} == {
        name: f"/{name}" for name in alive
    }
    # A name that does not exist, and a host that does not answer, need one attempt to know.
    attempts = Counter(
        (failure["code"], failure["attempts"])
        for failure in result.failures.values()
        if failure["code"] != "connect"
    )
    assert all(number <= 1 for (_, number) in attempts), attempts


def test_queries_are_few(tmp_path: Path) -> None:
    with hosts() as web:
        listed = [url for kind in (Kind.LIVE, Kind.REFUSE) for url in web.urls(kind, 40, 5)]
        listed += web.urls(Kind.NX, 40, 1)
        options = (*QUICK, "--dns-server", web.server)
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
    assert result.report["attempts_by_error"]["dns"] == 40  # a name that does not exist is not tried again
    counts: Any = web.dns.counts
    assert counts["names"] == 120
    # A and AAAA, once each: c-ares keeps an answer as long as it is valid.
    assert counts["by_kind"]["live"] == counts["by_kind"]["nx"] == 80
    assert counts["most_per_type"] <= 3


def test_hosts_that_do_not_answer_hold_no_slot(web: Web, tmp_path: Path) -> None:
    """Dead hosts come first, more than there are connections, and would wait for five minutes each."""
    listed = web.urls(Kind.VOID, 30, 2) + web.urls(Kind.LIVE, 20, 10)
    (tmp_path / "list.txt").write_text("\n".join(listed) + "\n")
    dest = tmp_path / "d"
    options = (*QUICK, "--connections", "4", "--connect-timeout", "5m", "--deadline", "10m")
    options += ("--dns-server", web.server)
    with contextlib.closing(
        Job(sys.executable, "-m", "downloader", tmp_path / "list.txt", "-o", dest, *options)
    ) as job:
        job.until(lambda: sum(path.name.startswith("live") for path in dest.glob("*")) == 200)
        job.until(lambda: "60 files wait for 30 hosts" in job.err)
        job.kill(signal.SIGINT)
        assert job.wait() == 130


def test_living_hosts_whose_names_take_long_or_are_not_answered_for_a_while(tmp_path: Path) -> None:
    """After quick answers c-ares waits a second or three for others, in three tries."""
    first: dict[str, float] = {}

    def after(name: str, kind: str) -> float | None:
        passed = monotonic() - first.setdefault(name[:4], monotonic())
        if name.startswith("slow"):
            return 4.5
        if name.startswith("lost"):
            return 0.0 if passed > 5 else None
        if name.startswith("half"):
            return 0.0 if passed > 5 or kind == "AAAA" else None
        return 0.0

    with (
        Server(default=lambda request: ok(request.target.encode())) as server,
        name_server(["127.0.0.1"], after=after) as names,
    ):
        kinds = {"fast": 40, "slow": 5, "lost": 5, "half": 5}
        hosts = [f"{kind}{number}" for kind, many in kinds.items() for number in range(many)]
        listed = [f"http://{host}.test:{server.port}/{host}" for host in hosts]
        options = ("--workers", "1", "--retries", "0", "--connect-timeout", "16s", "--dns-server", names)
        result = download("-", tmp_path / "d", *options, stdin="\n".join(listed))
    assert result.codes == {}
    assert set(result.files) == set(hosts)


@pytest.mark.slow
def test_answer_that_comes_at_the_end_of_the_time_counts(tmp_path: Path) -> None:
    """All answers take so long: that to the first packet comes when the last one was sent long ago."""
    with (
        Server(default=lambda request: ok(b"x")) as server,
        name_server(["127.0.0.1"], after=lambda name, kind: 15.0) as names,
    ):
        url = f"http://slow.test:{server.port}/x"
        options = ("--retries", "0", "--connect-timeout", "16s", "--dns-server", names)
        result = download("-", tmp_path / "d", *options, stdin=url)
    assert (result.codes, set(result.files)) == ({}, {"x"})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"dns_server": "localhost"}, "--dns-server: 'localhost' is not an IP address"),
        ({"dns_server": "192.0.2.1", "resolver": "system"}, "--dns-server needs --resolver cares"),
    ],
)
def test_unusable_name_server_is_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Config(source="http://h", output="d", **given)


HOSTS = """\
127.0.0.1 localhost
127.0.0.2 refused  # the second line has the address that answers
127.0.0.1 refused
::1 both
127.0.0.1 BOTH other
127.0.0.1 commented#without a blank
127.0.0.1 one
"""


@pytest.mark.parametrize("resolver", ["cares", "system"])
def test_all_lines_of_a_name_in_the_hosts_file_count(resolver: str, tmp_path: Path) -> None:
    names = ("refused", "both", "other", "commented", "one")
    with Server(default=ok()) as server:
        (tmp_path / "list.txt").write_text(
            "".join(f"http://{name}:{server.port}/{name}\n" for name in names)
        )
        (tmp_path / "hosts").write_text(HOSTS)
        done = run_behind_mount(
            f"mount --bind {shlex.quote(str(tmp_path / 'hosts'))} /etc/hosts",
            *(tmp_path / "list.txt", "-o", tmp_path / "d", *QUICK),
            *("--resolver", resolver, "--progress", "none"),
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in (tmp_path / "d").iterdir()} == {*names, ".downloader"}


def test_names_that_the_system_does_not_know_are_told_once(tmp_path: Path) -> None:
    """Nothing else is on standard error, as --log-json promises."""
    listed = "".join(f"http://no-such-host-{n}.invalid/x{n}\n" for n in range(3))
    options = ("--resolver", "system", "--retries", "0", "--log-json")
    result = download("-", tmp_path / "d", *options, stdin=listed)
    assert set(result.codes.values()) == {"dns"}
    assert all(isinstance(json.loads(line), dict) for line in result.stderr.splitlines()), result.stderr
