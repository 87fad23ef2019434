"""Secrets given to the command line: shown nowhere, in no file, in no hint. All through a real process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from checker import left_in
from servers import CLOSE, RESET, Certificates, Request, Server, Step, Tls, listing, ok, status

from downloader.reporting.console import Console

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOW = ("--retries", "0", "--workers", "1")
SECRET = "s3cr3t-Tok3n"


def everything(root: Path, *outputs: str) -> bytes:
    """Return every byte that a run printed or left."""
    return b"\n".join([*(text.encode() for text in outputs), left_in(root)])


def test_secrets_in_a_list(run_downloader: Run, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with (
        Server({"/ok": ok(b"x")}) as server,
        Server(tls=certificates.context(Tls.UNKNOWN_CA)) as unknown,
        Server(default=[RESET]) as resets,
    ):
        hosts = [server.url, unknown.url, resets.url, "http://127.0.0.1:1", "http://no.invalid"]
        lines = [f"{server.url}/ok?token={SECRET}&a=b"]
        for number, host in enumerate(hosts):
            scheme, _, rest = host.partition("://")
            lines += [
                f"{host}/a{number}?token={SECRET}",
                f"{host}/b{number}?X-Amz-Signature={SECRET}&sig={SECRET}#access_token={SECRET}",
                f"{scheme}://user:{SECRET}@{rest}/c{number}",
                f"{host}/d{number}?api_key={SECRET}&x=%ff",
            ]
        lines += [
            f"http://user:{SECRET}@*.bad/x?token={SECRET}",
            f"http://user:{SECRET}@{'a' * 70}.example/x?token={SECRET}",
            f"http://user:{SECRET}@\u2603\u2603{'x' * 70}.example/x?token={SECRET}",
            f"http://h:x/?token={SECRET}",
            f"ftp://u:{SECRET}@h/",
            f"Authorization: Bearer {SECRET}",
        ]
        out = tmp_path / "out"
        out.mkdir()
        done = run_downloader(
            "-", "-o", out / "d", "-vv", "--retries", 1, "--backoff", "1ms", "--workers", 1,
            "-vvH", f"X-Api-Key: {SECRET}-2", "--report", out / "r.json", "--failures", out / "f.jsonl",
            input="\n".join(lines) + "\n",
        )  # fmt: skip
        assert server.seen(f"/ok?token={SECRET}&a=b")[0].header("X-Api-Key") == f"{SECRET}-2"
    assert done.returncode == 1, done.stderr
    assert SECRET.encode() not in everything(out, done.stdout, done.stderr)
    assert json.loads((out / "r.json").read_text())["stored"] == 1


@pytest.mark.parametrize("how", ["userinfo", "token", "netrc", "auth", "proxy", "header"])
@pytest.mark.parametrize("server_is", ["refusing", "failing"])
def test_secrets_of_a_server(run_downloader: Run, tmp_path: Path, how: str, server_is: str) -> None:
    secret_file = tmp_path / "secret"
    text = f"machine 127.0.0.1 login u password {SECRET}" if how == "netrc" else f"u:{SECRET}"
    secret_file.write_text(text)
    secret_file.chmod(0o600)
    out = tmp_path / "out"
    out.mkdir()
    with Server({"/list": listing(["a"]), "/get/a": status(401, f"X: {SECRET}")}) as server:
        address = f"127.0.0.1:{server.port if server_is == 'failing' else 1}"
        source = {"userinfo": f"http://u:{SECRET}@{address}", "token": f"http://{SECRET}@{address}"}
        args = {
            "netrc": ["--netrc"],
            "auth": ["--auth-file", secret_file],
            "proxy": ["--proxy", f"http://u:{SECRET}@{address}"],
            "header": ["-H", f"Cookie: {SECRET}"],
        }
        done = run_downloader(
            source.get(how, f"http://{address}"), "-o", out / "d", *NOW, "-vv", *args.get(how, ()),
            "--report", out / "r.json", "--failures", out / "f.jsonl", env={"NETRC": str(secret_file)},
        )  # fmt: skip
        assert done.returncode == (1 if server_is == "failing" and how != "proxy" else 4), done.stderr
        if server_is == "failing":
            assert server.requests
    assert SECRET.encode() not in everything(out, done.stdout, done.stderr)
    assert "dTpzM2NyM3Q" not in done.stdout + done.stderr  # its beginning in base64


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_secrets_that_a_server_sends_back(run_downloader: Run, tmp_path: Path, lane: str) -> None:
    """In a response that is not HTTP: http.client puts the line into its message."""
    out = tmp_path / "out"
    out.mkdir()

    def answer(request: Request) -> list[Step]:
        return [f"{request.header('X-Api-Key')} {request.target}\r\n\r\n".encode(), CLOSE]

    with Server({"/list": listing(["a"])}, default=answer) as server:
        done = run_downloader(
            server.url, "-o", out / "d", *NOW, "-vv", "-H", f"X-Api-Key: {SECRET}", "--lane", lane,
            "--report", out / "r.json", "--failures", out / "f.jsonl",
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert json.loads((out / "f.jsonl").read_text())["code"] == "protocol"
    assert SECRET.encode() not in everything(out, done.stdout, done.stderr)


def test_journal_and_report_are_private_and_files_are_not(run_downloader: Run, tmp_path: Path) -> None:
    out = tmp_path / "d"
    with Server(files={"a": ok()}) as server:
        done = run_downloader(
            server.url, "-o", out, *NOW, "--report", out / "r.json", "--failures", out / "f.jsonl",
            preexec_fn=lambda: os.umask(0o027),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.rglob("*")}
    assert modes.pop("a") == 0o640
    assert modes.pop(".downloader") == 0o700
    assert {name: oct(mode) for name, mode in modes.items()} == dict.fromkeys(modes, "0o600")
    assert {"r.json", "f.jsonl", "journal.sqlite"} <= set(modes)


def test_command_to_repeat_omits_headers() -> None:
    console = Console(["-", "-o", "d", "-H", "A: xy", "-HB:xy", "-vH", "C: xy", "-qvHD: xy", "--restart"])
    assert console.next_command(0) == ""
    assert (
        console.next_command(4) == "resume with: downloader - -o d -H 'A: …' '-HB: …' -vH 'C: …' '-qvHD: …'"
        " (and the same list on standard input)"
    )
    assert " --retry-failed (and" in console.next_command(1)
    assert console.next_command(1, retry=False) == ""
