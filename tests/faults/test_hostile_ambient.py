"""Influences of the environment, and what is sent: headers, credentials, proxies, cookies."""

from __future__ import annotations

import re
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest
from servers import Certificates, Request, Server, Step, Tunnel, closed_port, download, ok, redirect, status

QUICK = ("--deadline", "2s", "--read-timeout", "1s", "--retries", "0", "--workers", "1")
SYSTEM = ("--resolver", "system")  # which these tests replace
BODY = b"hello"
DAMAGED = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def netrc(tmp_path: Path, mode: int = 0o600) -> Path:
    path = tmp_path / "home" / ".netrc"
    path.parent.mkdir(exist_ok=True)
    path.write_text("machine 127.0.0.1 login me password pw\n")
    path.chmod(mode)
    return path


def test_environment_is_ignored_unless_requested(tmp_path: Path) -> None:
    netrc(tmp_path)
    certificates = Certificates(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    wrong = Certificates(other)
    keys = tmp_path / "keys"
    with (
        Server(default=ok(b"from the proxy")) as proxy,
        Server(files={"a": ok(BODY)}, tls=certificates.context()) as tls,
        Server(default=ok(BODY)) as plain,
        Server(default=ok(BODY), tls=wrong.context()) as untrusted,
    ):
        env = {
            f"{name}_{kind}": proxy.url for name in ("http", "https", "all") for kind in ("proxy", "PROXY")
        }
        env |= {name.upper(): value for name, value in env.items()}
        env |= {name: str(wrong.ca) for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")}
        env |= {"SSLKEYLOGFILE": str(keys)}
        result = download(
            "-",
            tmp_path / "d",
            *QUICK,
            *("--cacert", str(certificates.ca)),
            env=env,
            stdin=f"{tls.url}/get/a\n{plain.url}/b\n{untrusted.url}/c\n",
        )
        assert result.files == {"a": BODY, "b": BODY}
        assert result.codes == {"c": "tls-verify"}
        assert proxy.connections == 0
        for request in (*tls.requests, *plain.requests):
            assert request.header("Authorization") is None
    assert not keys.exists()


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_cas_of_the_system_are_trusted_when_requested(lane: str, tmp_path: Path) -> None:
    certificates, company = Certificates(tmp_path), tmp_path / "company"
    company.mkdir()
    (company / "0123abcd.0").write_bytes(b"# damaged, as one among many may be\n" + DAMAGED)
    (company / "0123abcd.1").write_bytes(certificates.ca.read_bytes())
    environments = (
        {"SSL_CERT_FILE": str(certificates.ca)},
        {"SSL_CERT_FILE": "", "SSL_CERT_DIR": f"/nowhere:{company}"},
    )
    options = (*QUICK, "--lane", lane)
    with (
        Server(default=ok(BODY), tls=certificates.context()) as server,
        Tunnel(tls=certificates.context()) as proxy,
    ):
        url = f"{server.url}/a"
        refused = download("-", tmp_path / "d", *options, env=environments[0], stdin=url)
        assert refused.codes == {"a": "tls-verify"}
        assert "--cacert system" in refused.failures["a"]["detail"]
        for number, env in enumerate(environments):
            for given in ((), ("--proxy", proxy.url)):
                dest = tmp_path / f"d{number}{len(given)}"
                more = (*options, *given, "--cacert", "system")
                result = download("-", dest, *more, env=env, stdin=url)
                assert (result.exit, result.files) == (0, {"a": BODY}), result.stderr
        assert proxy.heads


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_advice_is_not_what_was_followed_already(lane: str, tmp_path: Path) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    ours.mkdir()
    others.mkdir()
    env = {"SSL_CERT_FILE": str(Certificates(others).ca)}
    options = (*QUICK, "--lane", lane, "--cacert", "system")
    with Server(default=ok(BODY), tls=Certificates(ours).context()) as server:
        file = download("-", tmp_path / "d", *options, env=env, stdin=f"{server.url}/a")
        listing = download(server.url, tmp_path / "e", *options, env=env)
    assert file.codes == {"a": "tls-verify"}
    for told in (file.failures["a"]["detail"], listing.report["stopped_by"]):
        assert "--cacert system" not in told
        assert "name its CA with --cacert FILE.pem, or install it on this system (update-ca" in told


def test_advice_about_credentials(tmp_path: Path) -> None:
    with Server(default=status(401)) as server:
        without = download(server.url, tmp_path / "d", *QUICK)
        wrong = download(server.url, tmp_path / "e", *QUICK, "-H", "Authorization: Bearer x")
    assert without.report["stopped_by"].endswith("; give credentials with --auth-file, --netrc or -H")
    assert wrong.report["stopped_by"].endswith("; are the credentials right, and those for this host?")


def test_file_named_system_is_named_with_its_directory(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    home = tmp_path / "home"  # where it runs
    home.mkdir()
    (home / "system").write_bytes(certificates.ca.read_bytes())
    with Server(default=ok(BODY), tls=certificates.context()) as server:
        url = f"{server.url}/a"
        word = download("-", tmp_path / "d", *QUICK, "--cacert", "system", stdin=url)
        file = download("-", tmp_path / "e", *QUICK, "--cacert", "./system", stdin=url)
    assert word.codes == {"a": "tls-verify"}
    assert file.files == {"a": BODY}


@pytest.mark.parametrize("env", [{"SSL_CERT_FILE": "/nowhere/ca.pem"}, {"SSL_CERT_DIR": "/nowhere"}])
def test_system_without_cas_is_one_error_before_the_start(env: dict[str, str], tmp_path: Path) -> None:
    env.setdefault("SSL_CERT_FILE", "")
    with Server(default=ok(BODY)) as server:
        result = download("-", tmp_path / "d", *QUICK, "--cacert", "system", env=env, stdin=server.url)
        assert (result.exit, server.connections) == (2, 0)
    assert "/nowhere" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "d").exists()


def test_proxy_env_uses_it(tmp_path: Path) -> None:
    with Server(default=ok(b"by proxy")) as proxy, Server(default=ok(BODY)) as direct:
        env = {"http_proxy": proxy.url.replace("//", "//me:pw@"), "no_proxy": "127.0.0.1"}
        result = download(
            "-",
            tmp_path / "d",
            *(*QUICK, "--proxy", "env"),
            env=env,
            stdin=f"http://files.example/a\n{direct.url}/b\n",
        )
        assert result.files == {"a": b"by proxy", "b": BODY}
        (request,) = proxy.requests
        assert request.target == "http://files.example/a"
        assert request.header("Proxy-Authorization") == basic("me", "pw")
        (request,) = direct.requests
        assert request.header("Proxy-Authorization") is None


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_proxy_option_overrides_the_environment(name: str, tmp_path: Path) -> None:
    with Server(default=ok(b"by proxy")) as proxy, Server(default=ok(BODY)) as direct:
        options = (*QUICK, "--proxy", proxy.url)
        source = f"{direct.url}/a\nhttp://files.example/b\n"
        result = download("-", tmp_path / "d", *options, env={name: "*"}, stdin=source)
        assert result.files == {"a": b"by proxy", "b": b"by proxy"}
        assert direct.connections == 0


def test_proxy_refusal(tmp_path: Path) -> None:
    with closed_port() as dead:
        result = download("-", tmp_path / "d", *QUICK, "--proxy", dead, stdin="http://files.example/a")
    assert result.codes == {"a": "proxy"}


def test_netrc(tmp_path: Path) -> None:
    path = netrc(tmp_path)
    with Server(default=ok(BODY)) as server:
        assert download("-", tmp_path / "d", *QUICK, "--netrc", stdin=server.url + "/a").exit == 0
        given = ("--netrc", "-H", "Authorization: Bearer mine")
        assert download("-", tmp_path / "e", *QUICK, *given, stdin=server.url + "/b").exit == 0
        assert server.seen("/a")[0].header("Authorization") == basic("me", "pw")
        assert server.seen("/b")[0].header("Authorization") == "Bearer mine"
        path.chmod(0o644)
        refused = download("-", tmp_path / "f", *QUICK, "--netrc", stdin=server.url + "/c")
        assert refused.exit == 2
        assert "chmod 600" in refused.stderr
        assert "pw" not in refused.stderr.replace(str(tmp_path), "")
        assert not server.seen("/c")


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_login_of_the_host_that_a_redirect_leads_to(lane: str, tmp_path: Path) -> None:
    """As with NASA Earthdata: to the login host, which has a netrc entry, and back with a cookie."""
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.2 login me password pw\nmachine LOCALHOST login you password pw2\n")
    path.chmod(0o600)

    def login_host(request: Request) -> list[Step]:
        if request.header("Authorization") != basic("me", "pw"):
            return status(401)
        return redirect(f"http://127.0.0.1:{data.port}/login?code=%7E&{request.target[1:]}")

    def data_host(request: Request) -> list[Step]:
        name = request.target.rpartition("/")[2]
        if request.target.startswith("/login?"):
            to = request.target.rpartition("&")[2]
            return status(302, f"Location: /{to}", "Set-Cookie: session=1; Path=/; HttpOnly")
        if request.header("Cookie") == "session=1":
            return ok(name.encode())
        return redirect(f"http://127.0.0.2:{login.port}/{name}")

    with (
        Server(default=login_host, host="127.0.0.2") as login,
        Server(default=data_host) as data,
    ):
        names = [f"f{n}" for n in range(8)]
        urls = "".join(f"{data.url}/{name}\n" for name in names)
        given = (
            "--netrc",
            "--workers",
            "1",
            "--connections",
            "1",
            "--lane",
            lane,
            "-H",
            "X-Api-Key: s3cret",
        )
        result = download("-", tmp_path / "d", *QUICK, *given, stdin=urls, env={"NETRC": str(path)})
        assert (result.exit, result.files) == (0, {name: name.encode() for name in names}), result.stderr
        # The cookie counts for the files behind the first ones, which need no login any more.
        assert 1 <= len(login.requests) <= 3
        for request in login.requests:
            assert [request.header(name) for name in ("X-Api-Key", "Cookie")] == [None, None]
        assert {request.header("Authorization") for request in data.requests} == {None}
        assert "pw" not in result.stderr + str(result.report)


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_only_a_machine_of_the_netrc_is_for_a_redirect(lane: str, tmp_path: Path) -> None:
    """Any server can redirect to any host: the default, --auth-file and a URL's login stay behind."""
    path, auth = tmp_path / "netrc", tmp_path / "auth"
    path.write_text("machine 127.0.0.2 login two password pw\ndefault login any password pw\n")
    auth.write_text("file:pw")
    for each in (path, auth):
        each.chmod(0o600)
    with Server(default=ok(BODY), host="0.0.0.0") as server:
        server.routes |= {
            f"/{host}": redirect(f"http://{host}:{server.port}/at/{host}")
            for host in ("127.0.0.2", "127.0.0.3", "127.0.0.1")
        }
        listed = [f"{server.url}/{host}" for host in ("127.0.0.2", "127.0.0.3", "127.0.0.1")]
        # A host that the list names.
        listed.append(f"http://127.0.0.4:{server.port}/127.0.0.4")
        given = (*QUICK, "--netrc", "--lane", lane)
        env = {"NETRC": str(path)}
        assert download("-", tmp_path / "d", *given, stdin="\n".join(listed), env=env).exit == 0
        sent = {each.target: each.header("Authorization") for each in server.requests}
        first = dict.fromkeys(
            ("/127.0.0.2", "/127.0.0.3", "/127.0.0.1", "/127.0.0.4", "/at/127.0.0.1"),
            basic("any", "pw"),
        )
        assert sent == first | {"/at/127.0.0.2": basic("two", "pw"), "/at/127.0.0.3": None}
        server.requests.clear()
        given = (*given, "--auth-file", str(auth))
        assert download("-", tmp_path / "e", *given, stdin="\n".join(listed), env=env).exit == 0
        sent = {each.target: each.header("Authorization") for each in server.requests}
        first = dict.fromkeys(first, basic("file", "pw"))
        assert sent == first | {"/at/127.0.0.2": basic("two", "pw"), "/at/127.0.0.3": None}


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_login_in_a_location_is_for_the_server_that_sent_it(lane: str, tmp_path: Path) -> None:
    """As with curl: one for another host is not sent, nor is one where -H has an Authorization."""
    with Server(default=ok(BODY), host="0.0.0.0") as server:
        here, there = (f"{host}:{server.port}" for host in ("127.0.0.1", "127.0.0.2"))
        server.routes |= {
            "/same": redirect(f"http://us%40er:s3cret@{here}/at/same"),
            "/same-relative": redirect(f"//us%40er:s3cret@{here}/at/again"),
            "/at/again": redirect("/at/same-relative"),
            "/other": redirect(f"http://us%40er:s3cret@{there}/at/other"),
            "/back": redirect(f"http://{there}/at/back"),
            "/at/back": redirect(f"http://us%40er:s3cret@{here}/at/home"),
        }
        listed = [f"http://me:pw@{here}/{name}" for name in ("same", "same-relative", "other", "back")]
        given = (*QUICK, "--lane", lane, "--manifest", str(tmp_path / "m.jsonl"), "-vv")
        result = download("-", tmp_path / "d", *given, stdin="\n".join(listed))
        assert (result.exit, set(result.files.values())) == (0, {BODY}), result.stderr
        sent = {each.target: each.header("Authorization") for each in server.requests}
        login = basic("us@er", "s3cret")
        assert {target: sent[target] for target in sent if target.startswith("/at/")} == {
            "/at/same": login,
            "/at/again": login,
            "/at/same-relative": login,
            "/at/other": None,
            "/at/back": None,
            "/at/home": None,
        }
        server.requests.clear()
        mine = ("-H", "Authorization: Bearer mine")
        assert download("-", tmp_path / "e", *QUICK, *mine, "--lane", lane, stdin=listed[0]).exit == 0
        assert {each.header("Authorization") for each in server.requests} == {"Bearer mine"}
    written = (tmp_path / "m.jsonl").read_text() + result.stderr + str(result.report)
    written += "".join(
        each.read_bytes().decode("latin-1") for each in (tmp_path / "d").rglob("*") if each.is_file()
    )
    assert "s3cret" not in written


# Entries of a netrc, the user in the URL, and the login that is sent.
ENTRIES = (
    (r"machine H login me password a\b\\c", "", ("me", r"a\b\\c")),
    (r'machine H login "m e" password "a\\b\"c\n\té"', "", ("m e", 'a\\b"c\n\té')),
    ('machine H login me password pa"ss"#', "", ("me", 'pa"ss"#')),
    ("MACHINE H\tLOGIN me\n\n  Password x", "", ("me", "x")),
    ("machine H password x login me", "", ("me", "x")),
    ("machine H account a login me password x", "", ("me", "x")),
    ("machine H login me # password no\n  # login no\n password x", "", ("me", "x")),
    ("machine H login me password x\nmacdef init\nmachine H login no password no\n", "", ("me", "x")),
    ("machine H login one password p1\nmachine H login two password p2", "", ("one", "p1")),
    ("machine H login one password p1\nmachine H login two password p2", "two", ("two", "p2")),
    ("machine H login one\nmachine H login two password p2", "", ("two", "p2")),
    ("machine H password p1\nmachine H login two password p2", "two", ("two", "p2")),
    ("machine H password gen", "two", ("two", "gen")),
    ("machine H password gen", "", ("", "gen")),
    ("machine H login two", "two", ("two", "")),
    ("machine H login two", "", ("two", "")),
    ('machine H login two password ""', "", ("two", "")),
    ("machine other login a password machine\nmachine H login me password x", "", ("me", "x")),
    ("# machine H login no password no\nmachine H login me password x", "", ("me", "x")),
)


@pytest.mark.parametrize("client", ["auto", "requests", "curl"])
def test_netrc_is_read_as_by_curl(client: str, tmp_path: Path) -> None:
    """By curl one entry at a time: in a file of several, an entry that lacks a value confuses curl 7.88."""
    hosts = [f"127.0.3.{number}" for number in range(1, len(ENTRIES) + 1)]
    entries = [re.sub(r"\bH\b", host, each[0]) for each, host in zip(ENTRIES, hosts, strict=True)]
    expected = {host: basic(*each[2]) for each, host in zip(ENTRIES, hosts, strict=True)}
    path = tmp_path / "netrc"
    path.touch(0o600)
    curl = shutil.which("curl")
    with Server(default=ok(BODY), host="0.0.0.0") as server:
        users = [f"{user}@" if user else "" for _, user, _ in ENTRIES]
        urls = [f"http://{u}{h}:{server.port}/{h}" for u, h in zip(users, hosts, strict=True)]
        if client != "curl":
            path.write_text("\n".join(entries))
            given = (*QUICK, "--netrc", "--lane", client)
            result = download("-", tmp_path / "d", *given, stdin="\n".join(urls), env={"NETRC": str(path)})
            assert (result.exit, len(result.files)) == (0, len(hosts)), result.stderr
        elif curl is None:
            pytest.skip("needs curl, from 7.84 on")
        else:
            for entry, url, host in zip(entries, urls, hosts, strict=True):
                if "password machine" in entry:
                    del expected[host]  # curl takes the password for the word
                    continue
                path.write_text(entry)
                subprocess.run([curl, "-sS", "--netrc-file", path, url], check=True, timeout=20)
        sent = {each.target[1:]: each.header("Authorization") for each in server.requests}
    assert sent == expected


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_login_of_a_url_with_and_without_a_password(lane: str, tmp_path: Path) -> None:
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.1 login me password pw\n")
    path.chmod(0o600)
    logins = {
        "token": ("token", ""),
        "token:": ("token", ""),
        ":pw": ("", "pw"),
        "a%40b:c%3Ad": ("a@b", "c:d"),
    }
    logins |= {"us%C3%A9r:p%E2%82%AC": ("usér", "p€"), "me": ("me", "pw"), "": ("me", "pw")}
    with Server(default=ok(BODY)) as server:
        urls = [server.url.replace("//", f"//{login}@") + f"/{n}" for n, login in enumerate(logins)]
        given = (*QUICK, "--netrc", "--lane", lane)
        result = download("-", tmp_path / "d", *given, stdin="\n".join(urls), env={"NETRC": str(path)})
        assert result.exit == 0, result.stderr
        sent = [server.seen(f"/{n}")[0].header("Authorization") for n in range(len(urls))]
        assert sent == [basic(*login) for login in logins.values()]


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_proxy_of_the_environment_is_not_for_the_networks_of_no_proxy(lane: str, tmp_path: Path) -> None:
    with Server(default=ok(b"by proxy")) as proxy, Server(default=ok(BODY), host="0.0.0.0") as direct:
        env = {
            "http_proxy": proxy.url.replace("http://", "token@"),  # no scheme, as it is often written
            "NO_PROXY": f"[::1], 127.1.0.0/16,127.2.0.1:{direct.port},.direct.test",
        }
        hosts = ["127.1.2.3", "127.2.0.1", "127.3.0.1", "indirect.test"]
        urls = "\n".join(f"http://{host}:{direct.port}/{n}" for n, host in enumerate(hosts))
        options = (*QUICK, "--proxy", "env", "--lane", lane)
        result = download("-", tmp_path / "d", *options, env=env, stdin=urls)
        assert result.files == {"0": BODY, "1": BODY, "2": b"by proxy", "3": b"by proxy"}, result.stderr
        assert {each.header("Proxy-Authorization") for each in proxy.requests} == {basic("token", "")}


def test_credentials_are_sent_as_the_bytes_they_are(tmp_path: Path) -> None:
    path = tmp_path / "auth"
    for raw in (b"me:p\xe2\x82\xacw\xc3\xa9", b"me:not-\xff-text"):
        path.write_bytes(raw + b"\n")
        path.chmod(0o600)
        with Server(files={"a": ok(BODY)}) as server:
            dest = tmp_path / raw[:4].hex() / str(len(raw))
            dest.parent.mkdir(exist_ok=True)
            done = download(server.url, dest, *QUICK, "--auth-file", str(path))
            assert (done.exit, done.files) == (0, {"a": BODY}), done.stderr
            for request in server.requests:
                assert request.header("Authorization") == "Basic " + b64encode(raw).decode()


def test_headers_arrive_as_given(tmp_path: Path) -> None:
    given = ["X-Two: 1", 'x-lower: a, b;c="d"', "User-Agent: mine/1", "Accept: text/*", "X-Empty:"]
    with Server(files={"a": ok(BODY)}) as server:
        options = [word for header in given for word in ("-H", header)]
        assert download(server.url, tmp_path / "d", *QUICK, *options).exit == 0
        for request in server.requests:
            sent = dict(request.headers)
            assert sent == {
                "Host": f"127.0.0.1:{server.port}",
                "User-Agent": "mine/1",
                "Accept-Encoding": "identity",
                "Accept": "text/*",
                "Connection": "keep-alive",
                "X-Two": "1",
                "x-lower": 'a, b;c="d"',
                "X-Empty": "",
            }
            assert len(sent) == len(request.headers)


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_cookie_behind_a_hundred_header_fields(lane: str, tmp_path: Path) -> None:
    many = [f"X-{n}: {n}" for n in range(150)]
    with Server(default=ok(BODY)) as server:
        server.routes["/0"] = status(
            302, *many, "Location: /1", *many, "Set-Cookie: a=1", "Set-Cookie: b=2 "
        )
        result = download("-", tmp_path / "d", *QUICK, "--lane", lane, stdin=f"{server.url}/0")
        assert result.files == {"0": BODY}
        assert server.seen("/1")[0].header("Cookie") == "a=1; b=2"


def test_number_of_kept_cookies_is_bounded(tmp_path: Path) -> None:
    def answer(request: Request) -> list[bytes]:
        return ok(BODY, f"Set-Cookie: c{request.target[1:]}=1")  # type: ignore[return-value]

    with Server(default=answer) as server:
        listed = "\n".join(f"{server.url}/{n}" for n in range(400))
        result = download("-", tmp_path / "d", *QUICK, "--connections", "1", stdin=listed)
        assert len(result.files) == 400
        assert max(len(request.header("Cookie") or "") for request in server.requests) < 2000


@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/x", "http://localhost:{port}/x"])
def test_redirect_from_private_to_private_is_followed(location: str, tmp_path: Path) -> None:
    with Server({"/x": ok(BODY)}) as server:
        server.routes["/a"] = redirect(location.format(port=server.port))
        assert download("-", tmp_path / "d", *QUICK, stdin=server.url + "/a").files == {"a": BODY}


PUBLIC = """
import _socket
real = _socket.getaddrinfo
def getaddrinfo(host, *rest):
    # A public name whose server is local: the connection goes to another address.
    if host in ("public.example", b"public.example"):
        if len(rest) > 4 and rest[4]:
            raise _socket.gaierror(-2, "not numeric")
        return [(2, 1, 6, "", ("93.184.216.34", 0))]
    return real(host, *rest)
_socket.getaddrinfo = getaddrinfo
class socket(_socket.socket):
    __slots__ = ()
    def connect_ex(self, address):
        return super().connect_ex(("127.0.0.1", *address[1:]))
    def connect(self, address):
        return super().connect(("127.0.0.1", *address[1:]))
_socket.socket = socket
"""


def test_redirect_from_public_to_private_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(PUBLIC)
    from servers.command import ROOT

    with Server({"/x": ok(BODY)}) as server:
        here = f"http://127.0.0.1:{server.port}/x"
        server.routes |= {
            "/a": redirect(here),
            "/b": redirect(f"http://[::ffff:127.0.0.1]:{server.port}/x"),
            "/c": redirect(f"http://0x7f.1:{server.port}/x"),
            "/d": redirect(f"http://public.example:{server.port}/x"),
        }
        env = {"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"}
        listed = "\n".join(f"http://public.example:{server.port}/{name}" for name in "abcd")
        result = download("-", tmp_path / "d", *QUICK, *SYSTEM, env=env, stdin=listed)
        assert result.codes == dict.fromkeys("abc", "redirect-refused"), result.failures
        assert result.files == {"d": BODY}
        assert len(server.seen("/x")) == 1
        allowed = (*QUICK, *SYSTEM, "--allow-private-redirects")
        result = download(
            "-", tmp_path / "e", *allowed, env=env, stdin=f"http://public.example:{server.port}/a"
        )
        assert result.files == {"a": BODY}
