"""A bucket is reached as --proxy, --cacert and --insecure say, and not as the environment does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from bucket_server import BucketServer, bucket_server, set_credentials
from servers import Certificates, Server, Tunnel, ok

from downloader.core.bucket_access import BucketAccess
from downloader.sinks.bucket_store import BucketError, open_bucket, translated

obstore = pytest.importorskip("obstore")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOBODY = "http://127.0.0.1:9"
LOGIN_WANTED = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"


class Place(NamedTuple):
    """A bucket behind TLS, and the CA of its server."""

    server: BucketServer
    certificates: Certificates

    def access(self, **options: object) -> BucketAccess:
        given = {"authorities": self.certificates.ca.read_bytes(), **options}
        return BucketAccess(self.server.url, "us-east-1", **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("moto")
    certificates = Certificates(directory)
    with bucket_server("moto", directory, certificates.pem(directory / "server.pem")) as server:
        yield Place(server, certificates)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the environment name proxies where nobody listens, and certificates that are none."""
    set_credentials(monkeypatch)
    monkeypatch.delenv("NO_PROXY")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "AWS_PROXY_URL"):
        monkeypatch.setenv(name, NOBODY)
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")


def put(access: BucketAccess) -> None:
    with translated():
        obstore.put(open_bucket("s3://shards/x", access), "a", b"a")


def refusal(access: BucketAccess) -> str:
    with pytest.raises(BucketError) as caught, translated():
        obstore.get(open_bucket("s3://shards/x", access), "a")
    return str(caught.value)


def test_a_job_and_its_commands_take_the_options(place: Place, run_downloader: Run, tmp_path: Path) -> None:
    """Publisher, supervisor, verify: each asks through the proxy, and trusts the CA that is named."""
    with Tunnel() as proxy, Server(files={"a": ok(b"a")}, tls=place.certificates.context()) as source:
        where = ("--endpoint-url", place.server.url, "--region", "us-east-1", "--proxy", proxy.url)
        trusting = (*where, "--cacert", place.certificates.ca)
        at = ("s3://shards/job", "--journal", tmp_path / "j")
        # A slash at the end means nothing.
        done = run_downloader(source.url, "-o", f"{at[0]}/", *at[1:], "--store", "tar", *trusting, "-q")
        assert done.returncode == 0, done.stderr
        there = [head.split()[1] for head in proxy.heads]
        bucket = place.server.url.partition("//")[2].encode()
        asked = there.count(bucket)
        assert asked >= 2
        checked = run_downloader("verify", *at, *trusting)
        assert checked.returncode == 0, checked.stderr
        assert len(proxy.heads) > len(there)
        plan = run_downloader("status", "s3://shards/job", *trusting)
        assert (plan.returncode, "has no plan of a job" in plan.stderr) == (2, True)
        doubted = run_downloader("verify", *at, *where)
        assert "the certificate of the server is not trusted; name its CA with --cacert" in doubted.stderr
    pages = obstore.list(open_bucket("s3://shards/job", place.access()))
    assert {entry["path"] for page in pages for entry in page} >= {"00000.tar", "00000_stats.json"}


def test_an_untrusted_server_is_found_before_the_run(
    place: Place, run_downloader: Run, tmp_path: Path
) -> None:
    with Server(files={"a": ok(b"a")}) as source:
        argv = (source.url, "-o", "s3://shards/no", "--journal", tmp_path / "j", "--store", "tar", "-q")
        done = run_downloader(*argv, "--endpoint-url", place.server.url, "--region", "us-east-1")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "the certificate of the server is not trusted; name its CA with --cacert FILE.pem" in line
        assert not source.requests


def test_trust_is_what_the_options_say(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    put(place.access())
    put(place.access(authorities=b"", insecure=True))
    # Neither where the environment leads, nor where it says that nothing matters.
    monkeypatch.setenv("SSL_CERT_FILE", str(place.certificates.ca))
    monkeypatch.setenv("AWS_ALLOW_INVALID_CERTIFICATES", "true")
    assert "is not trusted" in refusal(place.access(authorities=b""))


def test_proxies_are_those_of_the_options(place: Place) -> None:
    with Tunnel() as proxy:
        by_scheme = {"http": NOBODY, "https": proxy.url.replace("//", "//me|x:p%40[s@")}
        put(place.access(proxies=by_scheme))
        (head,) = proxy.heads
        assert b"\r\nproxy-authorization: Basic bWV8eDpwQFtz\r\n" in head
        port = place.server.url.rpartition(":")[2]
        for each in ("127.0.0.1", "10.0.0.0/8 127.0.0.0/8", f"127.0.0.1:{port}", "*"):
            put(place.access(proxies=by_scheme, no_proxy=each))
        assert len(proxy.heads) == 1
        put(place.access(proxies={"all": proxy.url}, no_proxy="127.0.0.1:1"))
        assert len(proxy.heads) == 2


def test_a_proxy_that_refuses_is_named(place: Place) -> None:
    with Tunnel(LOGIN_WANTED) as proxy:
        for access in (
            place.access(proxies={"https": proxy.url}),
            BucketAccess("http://127.0.0.1:9", "us-east-1", {"http": proxy.url}),
        ):
            assert "the proxy refuses its login, or wants one; give --proxy" in refusal(access)
    with Tunnel(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n") as proxy:
        assert "the proxy leads to no server; check --proxy" in refusal(
            place.access(proxies={"https": proxy.url})
        )


def test_the_environment_is_given_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("AWS_PROXY_URL")
    before = dict(os.environ)
    open_bucket("s3://shards/x", place.access())
    os.environ.pop("RUST_BACKTRACE")
    before.pop("RUST_BACKTRACE", None)
    assert dict(os.environ) == before
