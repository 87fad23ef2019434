"""The servers of the open web: DNS for names of every kind, addresses that refuse or are silent, nginx."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdata
import pytest

from benchmarks import rounds
from benchmarks.cells import CELLS, Cell
from benchmarks.clients import CLIENTS, Client
from benchmarks.openweb import tables
from benchmarks.openweb.names import ZONE, Addresses, Kind, host, kind_of, own_addresses
from benchmarks.openweb.namespace import inside, unavailable, write_resolv_conf
from benchmarks.openweb.origin import Dns, dns_server, open_web
from benchmarks.openweb.urls import DEAD, compare, pages
from benchmarks.openweb.void import void
from benchmarks.openweb.zone import Zone
from benchmarks.origin import nginx_installed
from benchmarks.results import Results
from benchmarks.running import cores, environment

# Otherwise imported when first needed, and by then another test may have made warnings of imports errors.
dns.rdata.load_all_types()

SHORT = 0.3  # seconds to wait for what must not come
DELAY_MS = 20.0

needs_namespace = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "available")
needs_nginx = pytest.mark.skipif(not nginx_installed(), reason="nginx is not installed")


@pytest.fixture
def server() -> Iterator[Dns]:
    with dns_server(own_addresses(), cores("origin", "shared"), port=0, delay_ms=DELAY_MS) as running:
        yield running


def ask(
    server: Dns, name: str, kind: str = "A", timeout: float = 10, over_tcp: bool = False
) -> dns.message.Message:
    query = dns.message.make_query(name, kind, use_edns=0)
    send = dns.query.tcp if over_tcp else dns.query.udp
    return send(query, server.address, port=server.port, timeout=timeout)


def addresses_in(message: dns.message.Message) -> list[str]:
    return [item.to_text() for answer in message.answer for item in answer]


@pytest.mark.parametrize("over_tcp", [False, True])
def test_names_resolve_to_the_address_of_their_kind(server: Dns, over_tcp: bool) -> None:
    own = own_addresses()
    for kind, address in ((Kind.LIVE, own.live), (Kind.REFUSE, own.refuse), (Kind.VOID, own.void)):
        answer = ask(server, host(kind, 7), over_tcp=over_tcp)
        assert (answer.rcode(), addresses_in(answer)) == (dns.rcode.NOERROR, [address])
        assert answer.flags & dns.flags.RA
        empty = ask(server, host(kind, 7), "AAAA", over_tcp=over_tcp)
        assert (empty.rcode(), empty.answer) == (dns.rcode.NOERROR, [])
        assert empty.authority[0].name.to_text() == f"{ZONE}."


def test_each_name_that_works_has_an_address_of_its_own() -> None:
    zone = Zone(own_addresses(3))
    found = []
    for number in range(4):
        answer = zone.answer(dns.message.make_query(host(Kind.LIVE, number), "A").to_wire())
        assert answer is not None
        found += addresses_in(dns.message.from_wire(answer))
    assert found == [*own_addresses(3).all_live(), own_addresses().live]


def test_answers_keep_the_spelling_of_the_question(server: Dns) -> None:
    assert ask(server, "LIVE-000001.Web.Test").answer[0].name.to_text() == "LIVE-000001.Web.Test."


def test_name_that_does_not_exist_is_nxdomain(server: Dns) -> None:
    for name in (host(Kind.NX, 1), f"anything.{ZONE}", f"a.{host(Kind.LIVE, 1)}"):
        assert ask(server, name).rcode() == dns.rcode.NXDOMAIN
    assert ask(server, "live-000001.example").rcode() == dns.rcode.REFUSED


def test_first_queries_of_each_type_fail_with_servfail(server: Dns) -> None:
    for number, failures in ((0, 1), (1, 2)):
        name = host(Kind.SERVFAIL, number)
        for kind in ("A", "AAAA"):
            codes = [ask(server, name, kind).rcode() for _ in range(failures + 2)]
            assert codes == [dns.rcode.SERVFAIL] * failures + [dns.rcode.NOERROR] * 2
        assert addresses_in(ask(server, name)) == [own_addresses().live]


def test_silent_name_is_never_answered_but_counted() -> None:
    with dns_server(own_addresses(), cores("origin", "shared"), port=0) as server:
        with pytest.raises(dns.exception.Timeout):
            ask(server, host(Kind.SILENT, 1), timeout=SHORT)
        assert ask(server, host(Kind.LIVE, 1)).answer
    assert server.counts["by_kind"] == {"live": 1, "silent": 1}


def test_no_answer_comes_before_the_delay(server: Dns) -> None:
    for _ in range(3):
        began = time.monotonic()
        ask(server, host(Kind.LIVE, 1))
        assert time.monotonic() - began >= DELAY_MS / 1000


def test_queries_are_counted_per_name_and_type() -> None:
    with dns_server(own_addresses(), cores("origin", "shared"), port=0, delay_ms=0) as server:
        for kind, times in (("A", 3), ("AAAA", 2)):
            for _ in range(times):
                ask(server, host(Kind.LIVE, 5), kind)
        ask(server, host(Kind.NX, 6))
    counts = server.counts
    assert (counts["queries"], counts["names"], counts["malformed"]) == (6, 2, 0)
    assert (counts["most_per_name"], counts["most_per_type"]) == (5, 3)
    assert counts["most_asked"] == host(Kind.LIVE, 5)
    assert counts["by_kind"] == {"live": 5, "nx": 1}


def test_counts_are_printed_on_a_signal_and_written_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    argv = [sys.executable, "-m", "benchmarks.openweb.dns_server", "--delay-ms", "0", "--counts", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        address, _, port = process.stdout.readline().removeprefix("listening ").rpartition(":")
        server = Dns(address, int(port))
        for queries in (1, 2):
            ask(server, host(Kind.LIVE, 1))
            process.send_signal(signal.SIGUSR1)
            assert json.loads(process.stdout.readline())["queries"] == queries
        process.terminate()
        assert json.loads(process.stdout.read())["queries"] == 2
    assert process.returncode == 0
    assert json.loads(file.read_text())["queries"] == 2


def test_malformed_query_gets_no_answer() -> None:
    zone = Zone(own_addresses())
    whole = dns.message.make_query(host(Kind.LIVE, 1), "A", use_edns=False).to_wire()
    question = len(whole)
    for length in range(question):
        assert zone.answer(whole[:length]) is None
    response = zone.answer(whole)
    assert response is not None
    assert zone.answer(response) is None
    too_long = whole.replace(b"live", b"l\xc0ve").replace(b"\x0b", b"\x3f")
    assert zone.answer(too_long) is None
    assert zone.counts()["malformed"] == question + 2


def test_kind_is_the_first_label() -> None:
    assert kind_of("servfail-12") == (Kind.SERVFAIL, 12)
    assert [kind_of(label) for label in ("live", "live-", "-1", "other-1", "live-1x")] == [None] * 5


def test_processes_have_addresses_of_their_own() -> None:
    found = [own_addresses(5_000, number) for number in range(1, 100)]
    every = {address for one in found for address in (one.dns, one.refuse, one.void, *one.all_live())}
    assert len(every) == 5_003 * len(found)


def test_void_neither_accepts_nor_refuses() -> None:
    own = own_addresses()
    with socket.socket() as taken:
        taken.bind((own.void, 0))
        port = taken.getsockname()[1]
    with void(own.void, port):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                socket.create_connection((own.void, port), SHORT)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((own.refuse, port), 10)


def test_list_is_the_same_each_time_and_has_the_dead_in_proportion() -> None:
    listed = pages(2_000, 500, dead=True)
    assert listed == pages(2_000, 500, dead=True)
    hosts = {page.host for page in listed}
    assert len(hosts) == 500
    for kind, part in DEAD.items():
        assert sum(name.startswith(f"{kind.value}-") for name in hosts) == part * 500
    assert sum(page.path.startswith("/gone/") for page in listed) == 100
    assert all(page.content for page in pages(100, 10))


def test_missing_wrong_and_unexpected_files_are_told_apart() -> None:
    listed = pages(400, 100, dead=True)
    good = [(page.name, page.content) for page in listed if page.content is not None]
    bad = next(page.name for page in listed if page.content is None)
    assert compare(listed, good) == (len(good), 0, 0)
    changed = [(good[0][0], b"other"), *good[2:], (bad, b""), ("unknown", b"")]
    assert compare(listed, changed) == (len(good) - 2, 2, 3)


@needs_namespace
@needs_nginx
def test_client_in_the_namespace_finds_the_server_and_its_content(tmp_path: Path) -> None:
    look = """
import socket, ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[1])
sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[2], timeout=30, context=context).read())
"""
    where = cores("origin", "shared")
    (tmp_path / "server").mkdir()
    with open_web(20, 5, True, tmp_path / "server", where) as web:
        assert web.cafile is not None
        with web.surrounding(tmp_path) as surroundings:
            for url, page in zip(web.urls(3), web.listed, strict=False):
                argv = surroundings.inside([sys.executable, "-c", look, web.cafile, url])
                done = subprocess.run(argv, check=True, capture_output=True, env=environment())
                assert done.stdout == page.content
        assert surroundings.said["dns_names"] == len({page.host for page in web.listed[:3]})


@needs_namespace
def test_resolv_conf_changes_in_the_namespace_only(tmp_path: Path) -> None:
    before = Path("/etc/resolv.conf").read_text()
    own = tmp_path / "resolv.conf"
    write_resolv_conf(own, "127.0.0.99")
    argv = inside(own, ["cat", "/etc/resolv.conf"])
    assert subprocess.check_output(argv, text=True) == "nameserver 127.0.0.99\n"
    assert Path("/etc/resolv.conf").read_text() == before


@needs_namespace
@needs_nginx
@pytest.mark.parametrize("dead", [False, True])
def test_cell_counts_what_each_client_stored(dead: bool) -> None:
    # Few hosts: of 20 one is NXDOMAIN, one refuses, and one accepts no connection.
    cell = Cell("tiny", "web", "tiny", ("threads",), files=40, hosts=20, tls=True, dead=dead, rounds=1)
    script = [sys.executable, "-m", "benchmarks.peers.urllib_threads"]
    threads = Client(
        "threads",
        lambda job: [*script, str(job.urls), str(job.destination), "20", str(job.cafile), "5"],
    )
    results = Results(None)
    rounds.run_cell(cell, results, lambda text: None, clients={"threads": threads})
    (run,) = results.of("tiny", "threads")
    assert (run.wrong, run.failure) == (0, "")
    obtainable = sum(page.content is not None for page in pages(40, 20, dead))
    assert run.said["right"] + run.said["missing"] == obtainable
    assert run.said["missing"] == 0
    assert run.said["dns_queries"] > 0
    row = tables.row(results, cell, "threads")
    assert f"all {obtainable}" in row


def test_cell_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "unavailable", lambda: "no such thing here")
    monkeypatch.setattr(rounds, "nginx_installed", lambda: True)
    cell = next(cell for cell in CELLS if cell.name == "web-http")
    said: list[str] = []
    results = Results(None)
    rounds.run_cell(cell, results, said.append, clients={name: CLIENTS[name] for name in cell.clients[:1]})
    assert said == ["web-http: no such thing here; left out"]
    assert results.of(cell.name, cell.clients[0]) == []


def test_reason_is_given_to_others_than_root(monkeypatch: pytest.MonkeyPatch) -> None:
    unavailable.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 1000)
        assert "root" in unavailable()
    unavailable.cache_clear()


def test_addresses_are_those_of_kinds_that_resolve() -> None:
    own = Addresses("127.9.0.1", "127.9.0.2", "127.9.0.3", "127.9.0.255", count=3)
    assert [own.of(kind) for kind in (Kind.NX, Kind.SILENT)] == [None, None]
    assert own.of(Kind.SERVFAIL) == own.live
    assert own.of(Kind.LIVE, 4) == "127.9.1.0"
    assert own.all_live() == ["127.9.0.255", "127.9.1.0", "127.9.1.1"]
