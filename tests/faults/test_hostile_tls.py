"""TLS that must be refused, TLS that is cut, and redirects between origins."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from servers import (
    CLOSE,
    CUT,
    HANG,
    RESET,
    Answer,
    Certificates,
    Nth,
    Pause,
    Result,
    Server,
    Tls,
    Tunnel,
    download,
    ok,
    redirect,
)

QUICK = ("--deadline", "3s", "--read-timeout", "1s", "--connect-timeout", "1s", "--retries", "1")
QUICK += ("--backoff", "50ms", "--workers", "2")
BODY = b"hello"
FILES = 40
NO_LENGTH = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"


class Case(NamedTuple):
    """A host. ``ends``: the code with which all ``FILES`` files of the host fail, or None: stored.
    ``most``: the most connections that the server may see."""

    ends: str | None
    most: int
    tls: Tls = Tls.GOOD
    connected: Answer = ()
    answer: Answer = tuple(ok(BODY))


# Permanently refused: no connection follows the first responses. Two workers, four connections each.
ONCE = 2 * 4
CASES = {
    "good": Case(None, ONCE),
    "expired": Case("tls-verify", ONCE, Tls.EXPIRED),
    "wrong-host": Case("tls-verify", ONCE, Tls.WRONG_HOST),
    "unknown-ca": Case("tls-verify", ONCE, Tls.UNKNOWN_CA),
    "tls-1.1": Case("tls-version", ONCE, Tls.OLD),
    "cut-in-handshake": Case("tls-handshake", 2 * ONCE + 6, connected=[CLOSE]),
    "reset-in-handshake": Case("tls-handshake", 2 * ONCE + 6, connected=[Pause(0.05), RESET]),
    "silent-in-handshake": Case("connect-timeout", 2 * ONCE + 6, connected=[HANG]),
    "not-tls": Case("tls-handshake", 2 * ONCE + 6, connected=[b"HTTP/1.1 400 Bad\r\n\r\n", CLOSE]),
    "cut-body": Case("reset", 2 * FILES, answer=[SHORT, CUT]),
    "cut-before-answer": Case("reset", 2 * FILES, answer=[CUT]),
    "no-length-polite": Case(None, FILES, answer=[NO_LENGTH, CLOSE]),
    # Without close_notify a complete response cannot be told from a truncated one.
    "no-length-cut": Case("reset", 2 * FILES, answer=[NO_LENGTH, CUT]),
}


class Ran(NamedTuple):
    result: Result
    servers: dict[str, Server]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    place = tmp_path_factory.mktemp("tls")
    certificates = Certificates(place)
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                Server(
                    default=case.answer,
                    tls=certificates.context(case.tls),
                    connected=case.connected,
                )
            )
            for name, case in CASES.items()
        }
        urls = [f"{server.url}/{name}.{n}" for n in range(FILES) for name, server in servers.items()]
        options = (*QUICK, "--per-host", "4", "--connections", "64", "--cacert", str(certificates.ca))
        yield Ran(download("-", place / "d", *options, stdin="\n".join(urls)), servers)


@pytest.mark.parametrize("name", CASES)
def test_all_files_of_a_host_end_with_the_same_code(ran: Ran, name: str) -> None:
    codes = {ran.result.codes.get(f"{name}.{n}") for n in range(FILES)}
    assert codes == {CASES[name].ends}
    bodies = {ran.result.files.get(f"{name}.{n}") for n in range(FILES)}
    assert bodies == {None if CASES[name].ends else BODY}


@pytest.mark.parametrize("name", CASES)
def test_hosts_with_bad_tls_see_few_connections(ran: Ran, name: str) -> None:
    # And the attempts of the pipelined client before it leaves an origin alone: three each, and those in
    # flight.
    assert 0 < ran.servers[name].connections <= CASES[name].most + 2 * (3 + 4)


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_reset_as_soon_as_it_was_accepted_has_one_code(lane: str, tmp_path: Path) -> None:
    """Also where the reset comes before the client looks at its socket, which is a matter of chance."""
    certificates = Certificates(tmp_path)
    with (
        Server(connected=[RESET], host="0.0.0.0") as plain,
        Server(connected=[RESET], host="0.0.0.0", tls=certificates.context()) as secure,
    ):
        hosts = [f"127.0.3.{n}" for n in range(1, 201)]
        urls = [f"http://{host}:{plain.port}/p{n}" for n, host in enumerate(hosts)]
        urls += [f"https://{host}:{secure.port}/s{n}" for n, host in enumerate(hosts)]
        options = (*QUICK, "--cacert", str(certificates.ca), "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin="\n".join(urls))
    assert len(result.codes) == 400
    assert {code for name, code in result.codes.items() if name[0] == "p"} == {"reset"}
    assert {code for name, code in result.codes.items() if name[0] == "s"} == {"tls-handshake"}


def test_insecure_accepts_any_certificate(tmp_path: Path) -> None:
    context = Certificates(tmp_path).context(Tls.UNKNOWN_CA)
    with Server(files={"a": ok(BODY)}, tls=context) as server:
        refused = download(server.url, tmp_path / "d", *QUICK)
        assert (refused.exit, server.count()) == (4, 0)
        assert "--cacert" in refused.report["stopped_by"]
        assert download(server.url, tmp_path / "d", *QUICK, "--insecure").files == {"a": BODY}


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (
            Tls.WRONG_HOST,
            "not valid for '127.0.0.1'; ask for the server by a name that its certificate has",
        ),
        (Tls.EXPIRED, "certificate has expired; the server needs a new one"),
        (
            Tls.UNKNOWN_CA,
            "; if you trust this server, name its CA with --cacert FILE.pem, or use those of the system "
            "with --cacert system",
        ),
    ],
)
def test_advice_in_the_error_works(kind: Tls, advice: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with Server(files={"a": ok(BODY)}, tls=certificates.context(kind)) as server:
        options = ("--cacert", str(certificates.ca))
        listing = download(server.url, tmp_path / "d", *QUICK, *options)
        file = download("-", tmp_path / "e", *QUICK, *options, stdin=f"{server.url}/get/a")
    for told in (listing.report["stopped_by"], file.failures["a"]["detail"]):
        assert advice in told
        assert ("--cacert" in told) == (kind is Tls.UNKNOWN_CA)


SECRETS = ("Authorization", "X-Api-Key", "Cookie")


def test_secrets_are_sent_only_to_their_origin(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with ExitStack() as stack:
        tls = stack.enter_context(Server(tls=certificates.context()))
        other = stack.enter_context(Server())
        first = stack.enter_context(Server())
        first.routes |= {
            "/there": redirect(f"{other.url}/there"),
            "/there-and-back": redirect(f"{other.url}/back"),
            "/here": redirect(f"{first.url}/end"),
            "/up": redirect(f"{tls.url}/end"),
            "/up-and-down": redirect(f"{tls.url}/down"),
            "/userinfo": redirect(other.url.replace("//", "//eve:pw@") + "/there"),
            "/back": ok(BODY),
            "/end": ok(BODY),
        }
        other.routes |= {"/there": ok(BODY), "/back": redirect(f"{first.url}/back")}
        tls.routes |= {"/end": ok(BODY), "/down": redirect(f"{first.url}/end")}
        asked = ["there", "there-and-back", "here", "up", "up-and-down", "userinfo"]
        result = download(
            "-",
            tmp_path / "d",
            *QUICK,
            *("--cacert", str(certificates.ca), "-H", "Authorization: Bearer s3cret"),
            *("-H", "X-Api-Key: s3cret", "-H", "Cookie: a=s3cret", "--failures", str(tmp_path / "f")),
            *("-H", "Accept: s3cret/*"),
            stdin="\n".join(f"{first.url}/{name}" for name in asked),
        )
        for name in asked:
            for request in first.seen(f"/{name}"):
                assert [request.header(secret) is not None for secret in SECRETS] == [True] * 3
        (kept,) = first.seen("/end")
        assert kept.header("X-Api-Key") == "s3cret"
        for request in (*other.requests, *tls.requests, *first.seen("/back")):
            assert [request.header(secret) for secret in SECRETS] == [None] * 3, request
            assert request.header("User-Agent")
            assert request.header("Accept") == "*/*"
    assert result.report["failed_by_error"] == {"redirect-refused": 1}  # from https to http
    assert result.report["stored"] == len(asked) - 1
    everything = result.stderr + str(result.report) + (tmp_path / "f").read_text()
    assert "s3cret" not in everything
    assert "pw@" not in everything


def test_credentials_of_a_url_survive_a_redirect_within_its_origin(tmp_path: Path) -> None:
    with Server() as server:
        server.routes |= {"/a": redirect(f"{server.url}/b"), "/b": ok(BODY)}
        url = server.url.replace("//", "//me:pw@") + "/a"
        assert download("-", tmp_path / "d", *QUICK, stdin=url).exit == 0
        assert {request.header("Authorization") for request in server.requests} == {"Basic bWU6cHc="}


def test_failing_redirect_target_does_not_affect_the_redirecting_host(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with ExitStack() as stack:
        expired = stack.enter_context(Server(tls=certificates.context(Tls.EXPIRED)))
        busy = stack.enter_context(
            Server(
                default=Nth([b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"], ok(BODY))
            )
        )
        first = stack.enter_context(Server(default=ok(BODY)))
        first.routes |= {f"/dead{n}": redirect(f"{expired.url}/{n}") for n in range(20)}
        first.routes |= {f"/busy{n}": redirect(f"{busy.url}/x") for n in range(20)}
        names = [f"{kind}{n}" for n in range(20) for kind in ("dead", "busy", "good")]
        result = download(
            "-",
            tmp_path / "d",
            *QUICK,
            *("--cacert", str(certificates.ca), "--connections", "2"),
            stdin="\n".join(f"{first.url}/{name}" for name in names),
        )
        assert result.codes == {f"dead{n}": "tls-verify" for n in range(20)}
        assert set(result.files) == {name for name in names if not name.startswith("dead")}
        # Each worker tries it three times, with what was in flight by then.
        assert expired.connections <= 8


def test_surplus_response_within_a_tls_record_is_not_stored(tmp_path: Path) -> None:
    """It is decrypted together with the first, and waits where poll does not report it."""

    def answer(letter: bytes) -> bytes:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
        return head % (8192 - len(head % 8000)) + letter * (8192 - len(head % 8000))

    first, second = answer(b"a"), answer(b"x")
    assert len(first + second) == 1 << 14  # one TLS record, and twice what http.client reads at once
    certificates = Certificates(tmp_path)
    files = {"a": [first + second], "b": ok(b"b")}
    with Server(files=files, tls=certificates.context()) as server:
        options = ("--cacert", str(certificates.ca), "--workers", "1", "--connections", "1")
        result = download(server.url, tmp_path / "d", *QUICK[:-2], *options)
    assert result.files == {"a": first.partition(b"\r\n\r\n")[2], "b": b"b"}
    assert result.exit == 0


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("retries", ["0", "1"])
@pytest.mark.parametrize("what", ["certificate", "cut"])
def test_one_bad_machine_behind_a_name_costs_its_own_files_only(
    what: str, retries: str, lane: str, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    good, bad = certificates.context(), certificates.context(Tls.EXPIRED)
    first = True

    def greet(connection: ssl.SSLObject, name: str, context: ssl.SSLContext) -> int | None:
        nonlocal first
        failing, first = first, False
        if failing and what == "cut":
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        if failing:
            connection.context = bad
        return None

    good.sni_callback = greet
    with Server(default=ok(BODY), tls=good) as server:
        listed = "\n".join(f"{server.url}/f{n}" for n in range(FILES))
        options = ("--retries", retries, "--lane", lane, "--cacert", str(certificates.ca))
        result = download(
            "-", tmp_path / "d", "--workers", "1", "--connections", "1", *options, stdin=listed
        )
    lost = 1 if what == "certificate" or retries == "0" else 0
    assert len(result.files) == FILES - lost, result.codes
    assert set(result.codes.values()) <= {"tls-verify" if what == "certificate" else "tls-handshake"}


UNDERSCORES = {
    # The certificate is for *.wild.test and exact.wild.test, and ``*`` is one label.
    "foo_bar.wild.test": None,
    "_.wild.test": None,
    "foo_bar.other.test": "tls-verify",
    "foo_bar.a.wild.test": "tls-verify",
    "foo_bar.exact.wild.test": "tls-verify",
    "exact_wild.test": "tls-verify",
    "foo.wild_test": "tls-verify",
    "foo.wild.test": None,
}


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_certificate_of_a_name_with_an_underscore(lane: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    context = certificates.context(hosts=["*.wild.test", "exact.wild.test"])
    with Server(default=ok(BODY), tls=context) as server, Tunnel(to=("127.0.0.1", server.port)) as proxy:
        listed = "".join(f"https://{name}/{name}\n" for name in UNDERSCORES)
        options = (*QUICK, "--proxy", proxy.url, "--lane", lane)
        trusted = ("--cacert", str(certificates.ca))
        result = download("-", tmp_path / "d", *options, *trusted, stdin=listed)
        unknown = download("-", tmp_path / "u", *options, stdin="https://foo_bar.wild.test/f\n")
        insecure = download("-", tmp_path / "i", *options, "--insecure", stdin=listed)
    assert result.codes == {name: code for name, code in UNDERSCORES.items() if code}
    assert set(result.files) == {name for name, code in UNDERSCORES.items() if not code}
    told = result.failures["foo_bar.other.test"]["detail"]
    assert "Hostname mismatch, certificate is not valid for 'foo_bar.other.test'; ask for" in told
    assert unknown.codes == {"f": "tls-verify"}
    assert insecure.exit == 0
