"""The files named in the options (a client certificate, its encrypted key, a list, a netrc) are read
once.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import ssl
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from checker import Truth, agree, left_in
from cryptography.hazmat.primitives import serialization
from harness import DevServer, Job, command, environment
from servers import Server, ok

Serve = Callable[..., DevServer]
Start = Callable[..., Job]
PASSWORD = "pa55-of-the-key"


class Client(NamedTuple):
    """A server that requires a client certificate, and the options with which its response is received."""

    server: Server
    ca: Path
    cert: Path
    key: Path  # encrypted

    def argv(self, dest: Path, *more: object) -> list[str]:
        options = ("--cacert", self.ca, "--cert", self.cert, "--key", self.key, "--workers", "2", *more)
        return command(self.server.url, "-o", dest, "--report", dest.parent / "report.json", *options)


FORMS = {
    "PKCS#8": serialization.PrivateFormat.PKCS8,
    "traditional": serialization.PrivateFormat.TraditionalOpenSSL,
}


@pytest.fixture
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = authority.issue_cert("client.example")
    plain = serialization.load_pem_private_key(mine.private_key_pem.bytes(), None)
    encrypted = plain.private_bytes(
        serialization.Encoding.PEM,
        FORMS[getattr(request, "param", "PKCS#8")],
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    places = [tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem")]
    contents = (authority.cert_pem.bytes(), mine.cert_chain_pems[0].bytes(), encrypted)
    for place, content in zip(places, contents, strict=True):
        place.write_bytes(content)
    with Server(files={"a": ok(b"a"), "b": ok(b"b")}, tls=context) as server:
        yield Client(server, *places)


class Terminal:
    """A command with this object as its controlling terminal."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.end = pty.fork()
        if not self.pid:
            os.execvpe(argv[0], argv, environment())
        self.text = ""
        self.before = termios.tcgetattr(self.end)[3]

    def read(self, until: str = "\0") -> None:
        """Return the terminal's output, up to ``until`` or to its end."""
        give_up = time.monotonic() + 60
        while until not in self.text:
            assert wait([self.end], max(0, give_up - time.monotonic())), self.text
            try:
                self.text += os.read(self.end, 4096).decode()
            except OSError:  # it has ended
                return

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.end)[3] & termios.ECHO)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def until_hidden(terminal: Terminal) -> None:
    """Wait until the echo is off. The prompt is written before or after that; no user types this fast."""
    while terminal.echoes():
        assert os.waitpid(terminal.pid, os.WNOHANG) == (0, 0), terminal.text


@contextlib.contextmanager
def at_terminal(argv: list[str]) -> Iterator[Terminal]:
    terminal = Terminal(argv)
    try:
        yield terminal
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(terminal.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(terminal.pid, 0)
        os.close(terminal.end)


@pytest.mark.parametrize("client", FORMS, indirect=True)
def test_key_password_is_asked_for_once(client: Client, tmp_path: Path) -> None:
    dest = tmp_path / "out" / "d"
    dest.parent.mkdir()
    with at_terminal(client.argv(dest, "-vv")) as terminal:
        terminal.read("key.pem: ")
        until_hidden(terminal)
        terminal.type(f"{PASSWORD}\n")
        terminal.read()
        assert terminal.wait() == 0, terminal.text
    assert {path.name: path.read_bytes() for path in dest.iterdir() if path.is_file()} == {
        "a": b"a",
        "b": b"b",
    }
    assert terminal.text.count("Password of ") == 1
    assert PASSWORD not in terminal.text
    assert PASSWORD.encode() not in left_in(dest.parent)


def test_a_wrong_password_is_one_error_and_nothing_is_begun(client: Client, tmp_path: Path) -> None:
    with at_terminal(client.argv(tmp_path / "d", "-vv")) as terminal:
        terminal.read("key.pem: ")
        until_hidden(terminal)
        terminal.type("another-word\n")
        terminal.read("error: ")
        assert terminal.echoes()
        terminal.read()
        assert terminal.wait() == 2, terminal.text
    assert "key.pem cannot be used with this password" in terminal.text
    assert terminal.text.count("error:") == 1
    assert "another-word" not in terminal.text
    assert not (tmp_path / "d").exists()
    assert client.server.connections == 0


def test_leaving_at_the_password_prompt_restores_the_echo(client: Client, tmp_path: Path) -> None:
    argv = ["sh", "-c", 'trap : INT; "$@"; echo code $?; read line', "sh", *client.argv(tmp_path / "d")]
    with at_terminal(argv) as terminal:
        terminal.read("key.pem: ")
        until_hidden(terminal)
        terminal.type("\x03")
        terminal.read("code 130")
        assert terminal.echoes()
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "dry-run"])
def test_without_a_terminal_an_encrypted_key_is_refused(
    more: tuple[str, ...], client: Client, tmp_path: Path
) -> None:
    argv = [each for each in client.argv(tmp_path / "d", *more) if not (more and each == "--report")]
    if more:
        argv.remove(str(tmp_path / "report.json"))
    done = subprocess.run(
        argv,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"openssl pkey -in {client.key} -out plain.pem" in done.stderr
    assert not (tmp_path / "d").exists()


def test_key_of_another_certificate_is_refused_at_the_start(
    client: Client, start: Start, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(trustme.CA().issue_cert("x.example").private_key_pem.bytes())
    job = start(client.server.url, "-o", tmp_path / "d", "--cert", client.cert, "--key", other)
    assert job.wait(30) == 2
    assert "cert.pem cannot be used: " in job.err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "dry-run"])
def test_damaged_authorities_are_refused_at_the_start(
    more: tuple[str, ...], client: Client, start: Start, tmp_path: Path
) -> None:
    """OpenSSL reads them in the workers; a run that ends with 2 has made nothing."""
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n")
    job = start(client.server.url, "-o", tmp_path / "d", "--cacert", damaged, *more)
    assert job.wait(30) == 2
    assert "damaged.pem is not a PEM file of certificates" in job.err
    assert not (tmp_path / "d").exists()


def test_program_passes_the_key_password(client: Client, tmp_path: Path) -> None:
    program = """
import sys
import downloader
for word in ("", "another-word", sys.stdin.readline().strip()):
    config = downloader.Config(
        source=sys.argv[1], output="d", cacert="ca.pem", cert="cert.pem", key="key.pem", key_password=word
    )
    try:
        print(downloader.download(config).exit_code, config)
    except downloader.ConfigError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, client.server.url],
        env=environment(),
        input=f"{PASSWORD}\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert ["is encrypted" in lines[0], "with this password" in lines[1], lines[2][0]] == [True, True, "0"]
    assert not done.stderr
    assert PASSWORD not in done.stdout


# Removed during the run


def urls(server: DevServer, count: int) -> str:
    return "".join(f"{server.url}/get/{Truth(count).name(index)}\n" for index in range(count))


def test_dead_worker_is_replaced_after_certificate_files_were_removed(
    client: Client, dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    truth = Truth(400)
    server = dev_server(files=truth.files, delay="0-50ms", tls=True)
    netrc, source, ca = tmp_path / "netrc", tmp_path / "list.txt", tmp_path / "authority.pem"
    key = trustme.CA().issue_cert("client.example")
    netrc.write_text("default login me password in-the-netrc\n")
    netrc.chmod(0o600)
    ca.write_bytes(Path(server.ca).read_bytes())
    source.write_text(urls(server, truth.files))
    both = tmp_path / "both.pem"
    both.write_bytes(key.private_key_and_cert_chain_pem.bytes())
    reports = tmp_path / "reports"
    reports.mkdir()
    options = ("--cacert", ca, "--cert", both, "--netrc", "--workers", 2, "--connections", 4)
    options += ("--report", reports / "r.json")
    job = start(source, "-o", tmp_path / "d", *options, env={"NETRC": str(netrc)})
    server.until(lambda counters: counters["gets"] > 50)
    for path in (netrc, source, ca, both):
        path.unlink()
    reports.rename(tmp_path / "away")
    os.kill(job.children()[1], signal.SIGKILL)
    job.until(lambda: "its files go to another" in job.err)
    (tmp_path / "away").rename(reports)
    assert job.wait(60) == 0, job.err
    agree(tmp_path / "d", 0, json.loads((reports / "r.json").read_text()))
    bodies = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir() if path.is_file()}
    assert bodies == {truth.name(index): truth.content(truth.name(index)) for index in range(truth.files)}


def test_dead_feeder_after_list_removal_ends_the_run_as_stopped_early(
    dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    server = dev_server(files=100_000, delay="0-20ms")
    source = tmp_path / "list.txt"
    text = urls(server, 100_000)
    source.write_text(text)
    argv: tuple[Any, ...] = (source, "-o", tmp_path / "d", "--workers", 1, "--connections", 64)
    job = start(*argv, "--store", "null")
    server.until(lambda counters: counters["gets"] > 50)
    source.unlink()
    os.kill(job.children()[0], signal.SIGKILL)
    assert job.wait(100) == 4, job.err
    assert "list.txt: No such file or directory" in job.err
    source.write_text(text)
    again = start(*argv, "--store", "null", "--limit", 5000)
    assert again.wait(100) == 0, again.err
