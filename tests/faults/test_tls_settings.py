"""TLS whatever the builder of Python, openssl.cnf and OPENSSL_CONF set: what is cut is not stored, and the
same servers are reached.
"""

from __future__ import annotations

import ast
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from servers import CLOSE, CUT, Answer, Certificates, Server, Tls, Tunnel, download, listing, ok

from downloader.process.tls_defaults import client_context, secured, server_context

ROOT = Path(__file__).resolve().parents[2]
LANES = pytest.mark.parametrize("lane", ["auto", "requests"])
QUICK = ("--retries", "1", "--backoff", "20ms", "--workers", "1", "--read-timeout", "5s")
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
NO_LENGTH = HEAD + b"\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
GZIP = HEAD + b"Content-Encoding: gzip\r\n\r\nhello"

CUTS: dict[str, Answer] = {
    "no-length": [NO_LENGTH, CUT],
    "no-length-nothing": [HEAD + b"\r\n", CUT],
    "no-length-coded": [GZIP, CUT],
    "chunks": [CHUNKED, CUT],
    "length": [HEAD + b"Content-Length: 9\r\n\r\nhello", CUT],
    "large": [HEAD + b"Content-Length: 9000000\r\n\r\n" + b"x" * 200_000, CUT],
    "head": [HEAD, CUT],
    "before": [CUT],
}
CLOSED: dict[str, Answer] = {
    "closed-no-length": [NO_LENGTH, CLOSE],
    "closed-nothing": [HEAD + b"\r\n", CLOSE],
    "closed-chunks": [CHUNKED + b"0\r\n\r\n", CLOSE],
    # A length says what is whole, however the connection ends.
    "cut-behind-length": [HEAD + b"Content-Length: 5\r\n\r\nhello", CUT],
}


@LANES
def test_cut_responses_are_not_stored_and_closed_ones_are(lane: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with ExitStack() as stack:
        urls = []
        # A host each: what one does must not change how the next is requested.
        for name, answer in (CUTS | CLOSED).items():
            server = stack.enter_context(Server(default=answer, tls=certificates.context()))
            urls.append(f"{server.url}/{name}")
        server = stack.enter_context(Server(tls=certificates.context(), connected=[CLOSE]))
        urls.append(f"{server.url}/handshake")
        options = (*QUICK, "--cacert", str(certificates.ca), "--lane", lane)
        result = download("-", tmp_path / "d", *options, stdin="\n".join(urls))
    assert result.codes == {name: "reset" for name in CUTS} | {"handshake": "tls-handshake"}
    assert result.files == {name: b"" if "nothing" in name else b"hello" for name in CLOSED}
    assert result.exit == 1


@LANES
def test_cut_robots_txt_does_not_allow_everything(lane: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    rules = HEAD + b"\r\nUser-agent: *\n"
    with (
        Server({"/robots.txt": [rules, CUT]}, default=ok(), tls=certificates.context()) as cut,
        Server({"/robots.txt": [rules, CLOSE]}, default=ok(), tls=certificates.context()) as closed,
    ):
        options = (*QUICK, "--cacert", str(certificates.ca), "--lane", lane, "--robots")
        result = download("-", tmp_path / "d", *options, stdin=f"{cut.url}/cut\n{closed.url}/closed")
        assert not cut.count("/cut")
    assert result.codes == {"cut": "robots"}
    assert result.files == {"closed": b"hello"}


@pytest.mark.parametrize("end", [CUT, CLOSE])
def test_cut_page_of_a_listing_stops_the_run(end: Answer, tmp_path: Path) -> None:
    """What had arrived would be a valid page without a marker: all files behind it would be missing."""
    certificates = Certificates(tmp_path)
    page = listing(["a"])[0]
    assert isinstance(page, bytes)
    routes: dict[str, Answer] = {
        "/list": [HEAD + b"\r\n" + page.partition(b"\r\n\r\n")[2], end],
        "/get/a": ok(),
    }
    with Server(routes, tls=certificates.context()) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--cacert", str(certificates.ca))
    assert (result.exit, result.files) == ((4, {}) if end is CUT else (0, {"a": b"hello"}))


@LANES
def test_cut_behind_a_proxy_over_tls(lane: str, tmp_path: Path) -> None:
    """Both the TLS to the proxy and, in a tunnel, the TLS within it may be cut."""
    certificates = Certificates(tmp_path)
    options = (*QUICK, "--cacert", str(certificates.ca), "--lane", lane)
    for name, end, code in (("cut", CUT, {"a": "reset"}), ("closed", CLOSE, {})):
        with Server(default=[NO_LENGTH, end], tls=certificates.context()) as server:
            given = (*options, "--proxy", server.url)
            forwarded = download("-", tmp_path / f"{name}-f", *given, stdin="http://files.example/a")
            assert forwarded.codes == code
            for tls in (None, certificates.context()):
                with Tunnel(tls=tls) as proxy:
                    dest = tmp_path / f"{name}-{tls is not None}"
                    given = (*options, "--proxy", proxy.url)
                    result = download("-", dest, *given, stdin=f"{server.url}/a")
                assert result.codes == code, (name, tls)
                assert result.files == ({} if code else {"a": b"hello"})


CONFIGURATION = """
openssl_conf = init
config_diagnostics = 1
[init]
ssl_conf = tls
[tls]
system_default = default
[default]
{}
"""
SETTINGS = {
    "nothing": "",
    "newest only": "MinProtocol = TLSv1.3",
    "none is new": "MaxProtocol = TLSv1.2",
    "oldest allowed": "MinProtocol = TLSv1\nCipherString = ALL:@SECLEVEL=0",
    "no 1.2": "Protocol = ALL,-TLSv1.2",
    "no 1.3": "Protocol = ALL,-TLSv1.3",
    "high level": "CipherString = DEFAULT:@SECLEVEL=5",
    "few ciphers": "CipherString = AES256-SHA256",
    "nonsense": "CipherString = NONE-OF-THESE",
}


class Hosts:
    """Servers of each kind, and what each must end in; None: stored."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        certificates = Certificates(directory)
        self.ca = str(certificates.ca)
        only_12, only_13, old_cipher = (certificates.context() for _ in range(3))
        only_12.maximum_version = ssl.TLSVersion.TLSv1_2
        only_13.minimum_version = ssl.TLSVersion.TLSv1_3
        old_cipher.maximum_version = ssl.TLSVersion.TLSv1_2
        old_cipher.set_ciphers("ECDHE-ECDSA-AES128-SHA")
        good = ok(b"hello")
        servers: dict[str, tuple[ssl.SSLContext, Answer, str | None]] = {
            "tls-1.2": (only_12, good, None),
            "tls-1.3": (only_13, good, None),
            "sha-1-cipher": (old_cipher, good, None),
            "tls-1.1": (certificates.context(Tls.OLD), good, "tls-version"),
            "cut": (certificates.context(), [NO_LENGTH, CUT], "reset"),
        }
        self.ends = {name: end for name, (_, _, end) in servers.items()}
        self.urls = "\n".join(
            f"{stack.enter_context(Server(default=answer, tls=context)).url}/{name}"
            for name, (context, answer, _) in servers.items()
        )


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(tmp_path_factory.mktemp("hosts"), stack)


@pytest.mark.parametrize("name", SETTINGS)
def test_openssl_configuration_changes_nothing(name: str, hosts: Hosts, tmp_path: Path) -> None:
    path = tmp_path / "openssl.cnf"
    path.write_text(CONFIGURATION.format(SETTINGS[name]))
    options = (*QUICK, "--cacert", hosts.ca)
    result = download("-", tmp_path / "d", *options, env={"OPENSSL_CONF": str(path)}, stdin=hosts.urls)
    found = {name: result.codes.get(name) for name in hosts.ends}
    assert found == hosts.ends, result.stderr
    assert {result.files[name] for name, end in hosts.ends.items() if end is None} == {b"hello"}


@pytest.mark.parametrize("protocol", [ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER])
def test_no_setting_of_a_distribution_remains(protocol: int) -> None:
    class Distribution(ssl.SSLContext):
        def __new__(cls, protocol: int) -> Distribution:
            made = super().__new__(cls, protocol)
            made.options |= 0x80  # OP_IGNORE_UNEXPECTED_EOF, as Debian's 3.11 sets it
            made.minimum_version = made.maximum_version = ssl.TLSVersion.TLSv1_3
            made.set_ciphers("AES256-SHA256:@SECLEVEL=1")
            return made

    made = secured(Distribution, protocol)
    plain = client_context() if protocol == ssl.PROTOCOL_TLS_CLIENT else server_context()
    for context in (made, plain):
        assert not context.options & 0x80
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.maximum_version == ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert [each["name"] for each in made.get_ciphers()] == [each["name"] for each in plain.get_ciphers()]


# What makes a context, or has one made, with the settings of whoever built Python. Ours is a ``kind(…)``.
MAKERS = {
    *("SSLContext", "create_default_context", "_create_unverified_context", "_create_stdlib_context"),
    *("create_urllib3_context", "wrap_socket", "HTTPSConnection", "PyOpenSSLContext"),
}
# In the process under check, on Python 2.7 too.
AGENT = "diagnostics/agent/https_agent/others.py"
# Programs of others, as they are: what is examined, what the benchmarks compare with.
OTHERS = ("diagnostics/scenarios/", "benchmarks/peers/", "benchmarks/strategies/")


def test_contexts_are_made_in_one_place() -> None:
    found = set()
    for folder in ("downloader", "diagnostics", "docker", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            place = str(path.relative_to(ROOT))
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                given = {each.arg for each in node.keywords}
                if called in MAKERS and not place.startswith(OTHERS):
                    # A method of a context, not the old function of the module.
                    made = ast.unparse(node.func)
                    if called != "wrap_socket" or made == "ssl.wrap_socket":
                        found.add(place)
                # A method of a pool is given its context with the pool.
                opens = ast.unparse(node.func) in ("urlopen", "request.urlopen", "urllib.request.urlopen")
                if opens and "context" not in given and not place.startswith(OTHERS):
                    found.add(place)
    assert found == {AGENT}


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("named", ["intermediate", "leaf"])
def test_what_is_named_is_trusted_though_another_ca_has_signed_it(
    named: str, lane: str, tmp_path: Path
) -> None:
    """As by curl: a CA below another one, or the certificate of the server itself."""
    below = trustme.CA().create_child_ca()
    own = below.issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.configure_cert(context)
    pem = tmp_path / "named.pem"
    (below.cert_pem if named == "intermediate" else own.cert_chain_pems[0]).write_to_path(str(pem))
    with Server(files={"a": ok(b"a")}, tls=context) as server:
        options = (*QUICK, "--cacert", str(pem), "--lane", lane)
        result = download(server.url, tmp_path / "d", *options)
        assert result.exit == 0, result.stderr
        trustme.CA().cert_pem.write_to_path(str(pem))
        assert download(server.url, tmp_path / "other", *options).exit != 0
