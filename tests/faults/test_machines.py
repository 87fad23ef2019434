"""Several machines behind one name, most of them out of order: the files come from the one that is not.

In which order they are tried is up to the resolver, which sorts the addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from dns.rcode import Rcode
from servers import CLOSE, HANG, RESET, Answer, Certificates, Server, Tls, download, ok, redirect, status
from servers.answers import Step
from servers.names import name_server
from servers.raw import Request

NAME = "machines.test"
BAD = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
FILES = 60
OPTIONS = ("--workers", "1", "--connect-timeout", "1s", "--read-timeout", "1s", "--backoff", "100ms")


class Bad(NamedTuple):
    """A machine that is out of order."""

    answer: Answer = ok(b"never")
    connected: Answer = ()
    tls: Tls | None = None


MACHINES = {
    "refuses with 503": Bad(status(503)),
    "fails with 500": Bad(status(500)),
    "asks to wait with 503": Bad(status(503, "Retry-After: 1")),
    "asks to wait with 429": Bad(status(429, "Retry-After: 1")),
    "resets each request": Bad([RESET]),
    "resets each connection": Bad(connected=[RESET]),
    "closes each connection": Bad(connected=[CLOSE]),
    "never answers": Bad([HANG]),
    "expired certificate": Bad(tls=Tls.EXPIRED),
    "certificate of another host": Bad(tls=Tls.WRONG_HOST),
    "old TLS": Bad(tls=Tls.OLD),
    "cuts the handshake": Bad(connected=[CLOSE], tls=Tls.GOOD),
    "silent in the handshake": Bad(connected=[HANG], tls=Tls.GOOD),
}


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("machine", MACHINES)
def test_another_machine_behind_the_name_serves(machine: str, lane: str, tmp_path: Path) -> None:
    bad = MACHINES[machine]
    context = broken = None
    options = OPTIONS
    if bad.tls is not None:
        certificates = Certificates(tmp_path)
        context, broken = certificates.context(hosts=[NAME]), certificates.context(bad.tls, [NAME])
        options = (*options, "--cacert", str(certificates.ca))
    with ExitStack() as running:
        good = running.enter_context(Server(default=ok(b"whole"), tls=context))
        for address in BAD:
            server = Server(
                default=bad.answer, connected=bad.connected, tls=broken, host=address, port=good.port
            )
            running.enter_context(server)
        names = running.enter_context(name_server([*BAD, "127.0.0.1"]))
        scheme = "http" if context is None else "https"
        listed = "\n".join(f"{scheme}://{NAME}:{good.port}/f{n}" for n in range(FILES))
        argv = ("--lane", lane, "--dns-server", names, *options)
        result = download("-", tmp_path / "d", *argv, stdin=listed)
    assert (result.exit, result.codes) == (0, {})
    assert result.files == {f"f{n}": b"whole" for n in range(FILES)}


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("bad", [BAD[:1], BAD])
@pytest.mark.parametrize("served", [0, 10])
def test_another_machine_behind_the_name_of_the_proxy_serves(
    served: int, bad: Sequence[str], lane: str, tmp_path: Path
) -> None:
    """Machines of the proxy refuse everything after so many requests of each were ``served``."""
    asked: Counter[str] = Counter()

    def fails(at: str, request: Request) -> Sequence[Step]:
        asked[at] += 1
        return status(503) if asked[at] > served else ok(b"whole")

    with ExitStack() as running:
        good = running.enter_context(Server(default=ok(b"whole")))
        for at in bad:
            running.enter_context(Server(default=partial(fails, at), host=at, port=good.port))
        names = running.enter_context(name_server([*bad, "127.0.0.1"]))
        listed = "\n".join(f"http://files.test/f{n}" for n in range(FILES))
        argv = ("--lane", lane, "--dns-server", names, "--proxy", f"http://{NAME}:{good.port}", *OPTIONS)
        result = download("-", tmp_path / "d", *argv, stdin=listed)
    assert (result.exit, result.codes) == (0, {})
    assert result.files == {f"f{n}": b"whole" for n in range(FILES)}


TRY_AGAIN = {
    "asks to wait with 429": status(429, "Retry-After: 1"),
    "asks to wait with 403": status(403, "Retry-After: 1"),
    "refuses with 429": status(429),
    "refuses with 408": status(408),
    "refuses with 503": status(503),
}


@pytest.mark.parametrize("answer", ["first", "later"])
@pytest.mark.parametrize("machine", TRY_AGAIN)
def test_another_machine_behind_the_name_that_a_redirect_leads_to_serves(
    machine: str, answer: str, tmp_path: Path
) -> None:
    """Its idle connections are closed before the pause ends: the host that redirects needs the room."""
    asked: Counter[str] = Counter()

    def answers(request: Request) -> Sequence[Step]:
        asked[request.host] += 1
        first = next(iter(asked))  # whichever it is
        bad = request.host == first and (answer == "first" or asked[first] > 20)
        return TRY_AGAIN[machine] if bad else ok(b"whole")

    def leads(request: Request) -> Sequence[Step]:
        return redirect(f"http://{NAME}:{one.port}{request.target}")

    with ExitStack() as running:
        one = running.enter_context(Server(default=answers))
        running.enter_context(Server(default=answers, host=BAD[0], port=one.port))
        entrance = running.enter_context(Server(default=leads))
        names = running.enter_context(name_server([BAD[0], "127.0.0.1"]))
        listed = "\n".join(f"{entrance.url}/f{n}" for n in range(FILES))
        argv = ("--dns-server", names, "--connections", "1", "--retries", "2", *OPTIONS)
        result = download("-", tmp_path / "d", *argv, stdin=listed)
    assert (result.exit, result.codes) == (0, {})
    assert result.files == {f"f{n}": b"whole" for n in range(FILES)}
    assert len(asked) == 2


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("missing", [Rcode.NOERROR, Rcode.NXDOMAIN, Rcode.SERVFAIL])
def test_host_has_an_ipv6_address_only(missing: Rcode, lane: str, tmp_path: Path) -> None:
    """Some name servers answer for the family that a host lacks as if the name did not exist."""
    with Server(default=ok(b"whole"), host="::1") as server, name_server(["::1"], missing) as names:
        listed = "\n".join(f"http://{NAME}:{server.port}/f{n}" for n in range(FILES))
        argv = ("--lane", lane, "--dns-server", names, *OPTIONS)
        result = download("-", tmp_path / "d", *argv, stdin=listed)
    assert (result.exit, result.codes) == (0, {})
    assert result.files == {f"f{n}": b"whole" for n in range(FILES)}


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("end", ["refuses", "resets", "answers 503"])
def test_name_that_gets_another_address_during_the_run(end: str, lane: str, tmp_path: Path) -> None:
    """The machine fails, and the name server says another one: as many retries as there are suffice."""
    addresses = ["127.0.0.2"]
    options = ("--connections", "1", "--rate", "20", *OPTIONS)
    if end == "refuses":
        options += ("--retries", "0")

    def answer(_: Request) -> Sequence[Step]:
        if len(first.requests) < FILES // 2:
            return ok(b"whole")
        addresses[:] = ["127.0.0.3"]
        if end == "refuses":
            first.refuse()
            return [*ok(b"whole"), CLOSE]
        return [RESET] if end == "resets" else status(503)

    first = Server(default=answer, host="127.0.0.2")
    second = Server(default=ok(b"whole"), host="127.0.0.3", port=first.port)
    with first, second, name_server(addresses, ttl=1) as names:
        listed = "\n".join(f"http://{NAME}:{first.port}/f{n}" for n in range(FILES))
        argv = ("--lane", lane, "--dns-server", names, *options)
        result = download("-", tmp_path / "d", *argv, stdin=listed)
    assert (result.exit, result.codes) == (0, {})
    assert result.files == {f"f{n}": b"whole" for n in range(FILES)}
    assert second.requests


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("others", ["refuse", "serve", "silent", "silent, serve"])
def test_bad_certificate_beside_machines_that_refuse(others: str, lane: str, tmp_path: Path) -> None:
    """The addresses are tried once each, also where a connection ends up at the same one every time."""
    certificates = Certificates(tmp_path)
    good, bad = certificates.context(hosts=[NAME]), certificates.context(Tls.EXPIRED, [NAME])
    kinds = [] if others == "refuse" else others.split(", ")
    addresses = ["127.0.0.2", "127.0.0.3", *(f"127.0.0.{4 + n}" for n in range(max(1, len(kinds))))]
    with ExitStack() as running:
        expired = running.enter_context(Server(default=ok(b"never"), tls=bad, host=addresses[1]))
        for kind, address in zip(kinds, addresses[2:], strict=False):
            connected = [HANG] if kind == "silent" else ()
            running.enter_context(
                Server(default=ok(b"whole"), connected=connected, tls=good, host=address, port=expired.port)
            )
        names = running.enter_context(name_server(addresses))
        argv = ("--lane", lane, "--dns-server", names, "--cacert", str(certificates.ca), *OPTIONS)
        result = download("-", tmp_path / "d", *argv, stdin=f"https://{NAME}:{expired.port}/f\n")
        handshakes = expired.connections
    if kinds[-1:] == ["serve"]:
        assert (result.exit, result.files) == (0, {"f": b"whole"})
    elif others == "refuse":
        assert (result.exit, result.codes) == (1, {"f": "tls-verify"})
        assert handshakes == 1
    else:  # by which of the three comes last
        assert result.exit == 1
        assert result.codes["f"] in ("tls-verify", "connect-timeout", "connect")
    assert handshakes <= 6  # attempts, by the options
