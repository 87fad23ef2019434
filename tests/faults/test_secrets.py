"""Four secrets, every kind of failure, -vv: no secret appears in the output or the files of a run, nor in
what other users see of its processes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from checker import left_in
from harness import Job, command, environment, members, run
from servers import Certificates, Nth, Request, Server, Step, Tls, listing, ok, redirect, status
from servers.rows import CASES, HOPS

from downloader.files.directory import open_home
from downloader.storage.journal import Journal

URL, HEADER, NETRC, PROXY = "url-s3cret-a", "header-s3cret-b", "netrc-s3cret-c", "proxy-s3cret-d"
PATIENCE = ("--deadline", "4s", "--read-timeout", "1500ms", "--connect-timeout", "2s")
PATIENCE += ("--retries", "1", "--backoff", "50ms", "--max-size", "1M", "--workers", "1", "-vv")


def forms(secret: str) -> list[bytes]:
    """Return the secret as it is, and as it appears in Basic credentials of `me` (the part that does not
    depend on what precedes it)."""
    return [secret.encode(), base64.b64encode(f"me:{secret}".encode())[4:-4]]


def b64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def seen_of(session: int, argv: list[str], over: threading.Event, found: list[bytes]) -> None:
    """Collect in ``found`` what /proc shows of the processes of ``session`` beyond the command that was
    typed."""
    typed = "\0".join(argv).encode() + b"\0"
    while not over.wait(0.05):
        for pid in members(session):
            try:
                shown = Path(f"/proc/{pid}/cmdline").read_bytes()
                found.append(shown if shown != typed else b"")
                found.append(Path(f"/proc/{pid}/comm").read_bytes())
            except OSError:
                continue


def lines(port: int, untrusted: int) -> list[str]:
    """Return the URLs: each on a host of its own, the secret in the query, the path's user or both."""
    found = []
    for number, name in enumerate(CASES, 1):
        host = f"127.0.1.{number}:{port}"
        user = f"me:{URL}@" if number % 3 == 0 else ""
        found.append(f"http://{user}{host}/get/{name}?token={URL}&sig={URL}")
    found += [
        f"https://127.0.0.1:{untrusted}/x?token={URL}",
        f"http://127.0.0.1:1/refused?token={URL}",
        f"http://no.invalid/x?api_key={URL}",
        f"http://me:{URL}@[::1/x",
        f"ftp://me:{URL}@h/x",
    ]
    return found


@pytest.mark.parametrize("way", ["straight", "by proxy"])
def test_no_secret_is_shown(way: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    netrc = tmp_path / "netrc"
    netrc.write_text(f"default login me password {NETRC}\n")
    netrc.chmod(0o600)
    out = tmp_path / "out"
    out.mkdir()

    def rows(request: Request) -> list[Step]:
        # The whole URL is sent to a proxy; it responds in place of the host.
        name = request.target.partition("?")[0].rpartition("/")[2]
        answer = (
            HOPS.get(request.target.partition("?")[0]) or CASES[name if name in CASES else "404"].answer
        )
        return list(answer.answers[0] if hasattr(answer, "answers") else answer)  # type: ignore[arg-type]

    with (
        Server(default=rows, host="0.0.0.0") as server,
        Server(tls=certificates.context(Tls.UNKNOWN_CA)) as untrusted,
    ):
        options = ["-H", f"X-Api-Key: {HEADER}", "-H", f"Authorization: Bearer {HEADER}", "--netrc"]
        if way == "by proxy":
            options += ["--proxy", f"http://me:{PROXY}@127.0.0.1:{server.port}"]
        source = tmp_path / "list.txt"
        source.write_text("\n".join(lines(server.port, untrusted.port)))
        argv = command(source, "-o", out / "d", *PATIENCE, *options, "--report", out / "r.json")
        argv += ["--failures", str(out / "f.jsonl")]
        job = Job(*argv, env={"NETRC": str(netrc)}, stdin=subprocess.DEVNULL)
        over, shown = threading.Event(), []
        watcher = threading.Thread(target=seen_of, args=(job.pid, argv, over, shown))
        watcher.start()
        try:
            code = job.wait()
        finally:
            over.set()
            watcher.join()
            told = job.out + job.err
            job.close()
        if way == "by proxy":
            sent = [request.header("Proxy-Authorization") or "" for request in server.requests]
            assert any(base64.b64encode(f"me:{PROXY}".encode()).decode() in each for each in sent)
        assert any(request.header("X-Api-Key") == HEADER for request in server.requests)
    assert code == 1, told
    report = json.loads((out / "r.json").read_text())
    assert len(report["failed_by_error"]) > (12 if way == "straight" else 8), report["failed_by_error"]
    assert shown
    everything = b"\n".join([told.encode(), left_in(out), *shown])
    for secret in (URL, HEADER, NETRC, PROXY):
        for form in forms(secret):
            assert form not in everything, everything[max(everything.find(form) - 200, 0) :][:400]


SECRETS_OF_URLS = [
    f"{word}-s3cret-{number}" for word in ("code", "key", "session", "token") for number in "ab"
]


def told_by(done: subprocess.CompletedProcess[str], out: Path) -> bytes:
    """Return everything that a run prints and leaves: output, contents, and the names of files."""
    names = "\n".join(str(path.relative_to(out)) for path in out.rglob("*"))
    return b"\n".join([done.stdout.encode(), done.stderr.encode(), names.encode(), left_in(out)])


@pytest.mark.parametrize("layout", ["flat", "hashed", "mirror"])
def test_urls_that_differ_in_a_secret_only_are_all_stored(layout: str, tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "list.txt"
    out.mkdir()

    def rows(request: Request) -> list[Step]:
        return ok(request.target.encode())

    with Server(default=rows) as server:
        lines = [f"{server.url}/get/x.bin?{secret[:-9]}={secret}" for secret in SECRETS_OF_URLS]
        source.write_text("\n".join(lines))
        args = (source, "-o", out / "d", "--layout", layout, "--workers", "1", "-vv", "--json")
        args += ("--report", out / "r.json", "--failures", out / "f.jsonl")
        done = run(*args)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["stored"] == len(lines)
        again = run(*args, "--restart")  # the same names: the stored files are found again
        assert (json.loads(again.stdout)["stored"], json.loads(again.stdout)["skipped"]) == (0, len(lines))
    for each in (done, again, run("status", out / "d"), run("verify", out / "d", "--json")):
        assert each.returncode == 0, each.stderr
        everything = told_by(each, out / "d" / ".downloader") + each.stdout.encode()
        assert [secret for secret in SECRETS_OF_URLS if secret.encode() in everything] == []
    files = [path for path in (out / "d").rglob("x*.bin") if path.is_file()]
    assert {path.read_bytes().decode() for path in files} == {line[len(server.url) :] for line in lines}
    assert not any(secret in str(path) for path in files for secret in SECRETS_OF_URLS)


@pytest.mark.parametrize("layout", ["flat", "mirror"])
def test_secrets_in_path_or_nested_url_are_in_no_name(layout: str, tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "list.txt"
    out.mkdir()
    hidden = quote(f"https://h/f?token={URL}", safe="")
    paths = [f"/a;jsessionid={URL}", f"/b;jsessionid={URL}/b", f"/c?url=https://h/f?token={URL}",
             f"/d?url={hidden}", f"/e?u=http://me:{URL}@h/", f"/f?a=1;token={URL}",
             f"/{'g' * 300};sid={URL}", f"/h%3Bsid={URL}"]  # fmt: skip
    with Server(default=status(404)) as server:
        lines = [f"{server.url}{path}" for path in paths] + [f"http://me:{URL}@127.0.0.1:{server.port}/i"]
        source.write_text("\n".join(lines))
        options = ("--workers", "1", "-vv", "--failures", out / "f.jsonl", "--report", out / "r.json")
        failed = run(source, "-o", out / "d", "--layout", layout, *options)
        assert failed.returncode == 1
        server._default = ok(b"x")
        stored = run(source, "-o", out / "d", "--layout", layout, *options, "--json")
    assert stored.returncode == 0, stored.stderr
    assert json.loads(stored.stdout)["stored"] == len(lines)
    listed = run(source, "--dry-run", "--layout", layout, "-o", out / "d")
    everything = told_by(failed, out) + told_by(stored, out) + listed.stdout.encode()
    assert URL.encode() not in everything, everything[max(everything.find(URL.encode()) - 200, 0) :][:400]


def test_secret_in_a_server_url_is_in_no_mirror_path(tmp_path: Path) -> None:
    # The server's own file names are not secret: they can be recovered from those on the disk.
    with Server(default=ok(b"x")) as server:
        prefix = f"/p;jsessionid={URL}"
        server.routes[f"{prefix}/list"] = listing(["a;sid=1", "b"])
        source = f"http://me:{PROXY}@127.0.0.1:{server.port}{prefix}"
        done = run(source, "-o", tmp_path / "out", "--layout", "mirror", "--workers", "1", "-v")
        host = f"127.0.0.1:{server.port}"
    assert done.returncode == 0, done.stderr
    files = [path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*") if path.is_file()]
    found = {str(path) for path in files if ".downloader" not in path.parts}
    assert found == {f"{host}/p;jsessionid/get/a;sid=1", f"{host}/p;jsessionid/get/b"}
    everything = told_by(done, tmp_path / "out")
    assert URL.encode() not in everything
    assert PROXY.encode() not in everything


@pytest.mark.parametrize("layout", ["flat", "mirror"])
def test_resumed_job_keeps_its_names(layout: str, tmp_path: Path) -> None:
    """Also where names would be different now: an earlier version chose them, with another key."""
    out, source = tmp_path / "out", tmp_path / "list.txt"

    def rows(request: Request) -> list[Step]:
        return ok(request.target.encode()) if "=0" in request.target else status(503)

    with Server(default=rows) as server:
        source.write_text("".join(f"{server.url}/x?token={number}{URL}\n" for number in range(3)))
        args = (source, "-o", out, "--layout", layout, "--workers", "1", "--retries", "0", "--json")
        assert run(*args).returncode == 1
        key = out / ".downloader" / "name-key"
        assert key.stat().st_mode & 0o777 == 0o600
        begun = [path.name for path in out.rglob("x*")]
        assert len(begun) == 1
        key.write_bytes(os.urandom(32))
        assert run(*args).returncode == 4, "the journal has a digest of the key"
        # That of an earlier version has none.
        with open_home(out / ".downloader") as home, contextlib.closing(Journal(home)) as journal:
            job = journal.job()
            assert job is not None
            journal.begin(msgspec.structs.replace(job, key=""))
        server._default = lambda request: ok(request.target.encode())
        done = run(*args)
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["stored"], json.loads(done.stdout)["skipped"]) == (2, 1)
    assert len(list(out.rglob("x*"))) == 3
    checked = run("verify", out)
    assert (checked.returncode, checked.stdout) == (0, "3 of 3 files agree with the journal\n")


def test_program_calling_download_shows_no_secret(tmp_path: Path) -> None:
    """``download()`` starts a fresh process; its task does not travel on the command line."""
    program = (
        "import sys, downloader\n"
        "header = (('X-Api-Key', sys.stdin.readline().strip()),)\n"
        "config = downloader.Config(source=sys.argv[1], output=sys.argv[2], headers=header, workers=1)\n"
        "print(downloader.download(config).exit_code)\n"
    )
    from servers import Pause, listing, ok

    with Server({"/list": listing(["a"])}, default=[Pause(1), *ok()]) as server:
        argv = [sys.executable, "-c", program, server.url, str(tmp_path / "d")]
        process = subprocess.Popen(
            argv, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        over, shown = threading.Event(), []
        watcher = threading.Thread(target=seen_of, args=(process.pid, argv, over, shown))
        watcher.start()
        try:
            out, _ = process.communicate(f"{HEADER}\n", timeout=100)
        finally:
            over.set()
            watcher.join()
        assert server.seen("/get/a")[0].header("X-Api-Key") == HEADER
    assert out.strip() == "0"
    assert shown
    assert HEADER.encode() not in b"\n".join(shown)


COLUMN, INLINE, GIVEN = "column-s3cret-e", "inline-s3cret-f", "cookie-s3cret-g"


def echoing(request: Request) -> list[Step]:
    """Send all credentials back: in a redirect, in fields, in a reason, in the name of a host."""
    sent = [request.header(name) or "" for name in ("Authorization", "X-Api-Key", "X-Item", "Cookie")]
    words = [word.strip("=") for each in sent for word in each.replace("sid=", "").split()]
    said = quote("-".join(words), safe="")
    kind = request.target.rpartition("/")[2][:1]
    if kind == "r":
        return redirect(f"/landed/{said}/f?plain={said}")
    if kind == "e":  # no longer as it was sent
        odd = "".join(f"%{ord(char):02x}" for char in "-".join(words))
        return redirect(f"/landed/{odd}/f")
    if kind == "h":
        return redirect(f"http://{words[2] if len(words) > 2 else 'x'}.invalid/")
    if kind == "m":
        return [f"HTTP/1.1 404 {said}\r\nContent-Length: 0\r\n\r\n".encode()]
    fields = [f'ETag: "{" ".join(words)}"', f"Content-Type: image/{said}", f"Last-Modified: {sent[1]}"]
    return ok(request.target[:7].encode(), *fields)


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("store", ["tar", "files"])
def test_what_a_server_sends_back_of_credentials_is_cut(store: str, lane: str, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {NETRC}\n")
    netrc.chmod(0o600)
    out = tmp_path / "out"
    out.mkdir()
    with Server(default=echoing) as server:
        rows = ["url,headers"]
        for kind in "pprrehm":
            item = json.dumps({"X-Item": COLUMN}).replace('"', '""')
            rows.append(f'{server.url}/get/{kind}{len(rows)},"{item}"')
            rows.append(f"http://me:{INLINE}@127.0.0.1:{server.port}/get/{kind}{len(rows)},")
            rows.append(f"{server.url}/get/{kind}{len(rows)}?token={URL},")
        source = tmp_path / "list.csv"
        source.write_text("\n".join(rows) + "\n")
        options = ["-H", f"X-Api-Key: {HEADER}", "-H", f"Cookie: sid={GIVEN}", "--netrc", "--lane", lane]
        options += ["--header-column", "headers", "--retries", "0", "-vv", "--json"]
        options += ["--failures", str(out / "f.jsonl"), "--report", str(out / "r.json")]
        for name in ("m.jsonl", "m.csv"):
            done = run(source, "-o", out / "d", "--store", store, *options, "--manifest", out / name,
                       env=environment(NETRC=str(netrc)))  # fmt: skip
            assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["stored"] + json.loads(done.stdout)["skipped"] == 15
    rows_of = [json.loads(line) for line in (out / "m.jsonl").read_text().splitlines()]
    assert len(rows_of) == 15
    assert sum("/landed/" in row["final_url"] or row["final_url"].endswith("/***") for row in rows_of) == 9
    everything = told_by(done, out)
    for secret in (URL, HEADER, NETRC, COLUMN, INLINE, GIVEN):
        for form in forms(secret):
            assert form not in everything, everything[max(everything.find(form) - 200, 0) :][:400]


# By how a redirect names it: the credential that it adds, and what comes behind.
HOPPED = {way: f"{way}-s3cret-9f8e7d" for way in ("here", "query", "login", "two")}
STORED = ("fields", "coded", "landed", "odd", "twice", "coding")
SAID = (*STORED, "host", "scheme", "unclear", "length", "reason", "digest")


def hopping(request: Request, here: str, there: str) -> list[Step]:
    """Redirect ``/WAY/KIND/…`` to where the server is sent a credential, which that repeats by KIND."""
    path, _, query = request.target.partition("?")
    _, way, kind, *rest = path.split("/")
    secret = HOPPED.get(way, "")
    targets = {
        "here": f"/e/{kind}?access_token={secret}",
        "query": f"{there}/e/{kind}?X-Amz-Signature={secret}&X-Amz-Date=1",
        "login": f"{here.replace('//', f'//me:{secret}@')}/e/{kind}",  # another host is sent none
        # What comes last is sent the credential of the hop before in no way that would tell that it is one.
        "two": f"{there}/on/{kind}?sig={secret}",
    }
    if way in targets:
        return redirect(targets[way])
    said = query.partition("=")[2].partition("&")[0]
    if login := request.header("Authorization"):
        said = base64.b64decode(login.split()[1]).decode().partition(":")[2]
    if way == "on":
        return redirect(f"{here}/e/{kind}/{said}")
    said = said or "".join(rest)
    if way == "landed":
        return ok(b"hello")
    return repeated(kind, said)


def repeated(kind: str, said: str) -> list[Step]:
    """Return a response of this ``kind`` that has what was ``said``."""
    coded = base64.b64encode(said.encode()).decode()
    return {
        "fields": ok(b"hello", f'ETag: "{said}"', f"Content-Type: image/{said}", f"Last-Modified: {said}"),
        "coded": ok(b"hello", f'ETag: "{coded}"', f"Content-Type: image/a; b={quote(said)}"),
        "landed": redirect(f"/landed/{said}/f?plain={said}"),
        "odd": redirect("/landed/" + "".join(f"%{ord(char):02x}" for char in said) + "/f"),
        "twice": redirect(f"/landed/{said}/f?sig={said}"),
        "host": redirect(f"http://{said}.invalid/"),
        "scheme": redirect(f"{said}://x/"),
        "unclear": redirect(f"http://[{said}/"),
        "coding": ok(b"hello", f"Content-Encoding: {said}"),
        "length": [f"HTTP/1.1 200 OK\r\nContent-Length: {said}\r\n\r\n".encode()],
        "reason": [f"HTTP/1.1 500 {said}\r\nContent-Length: 0\r\n\r\n".encode()],
        "digest": ok(
            b"hello", f"Repr-Digest: sha-256=:{base64.b64encode(said.ljust(32).encode()).decode()}:"
        ),
    }[kind]


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize("store", ["tar", "files"])
def test_what_a_server_sends_back_of_a_redirect_is_cut(store: str, lane: str, tmp_path: Path) -> None:
    """It was sent what another server has put in its URL, and not what the list has."""
    out = tmp_path / "out"
    out.mkdir()
    at: list[str] = []

    def rows(request: Request) -> list[Step]:
        return hopping(request, *at)

    with Server(default=rows) as here, Server(default=rows) as there:
        at += [here.url, there.url]
        source = tmp_path / "list.txt"
        source.write_text(
            "".join(f"{here.url}/{way}/{kind}/{kind}-{way}\n" for way in HOPPED for kind in SAID)
        )
        options = ["--lane", lane, "--retries", "1", "--backoff", "10ms", "--checksums", "all", "-vv"]
        options += ["--compressed"] if lane == "requests" else []
        options += ["--failures", str(out / "f.jsonl"), "--report", str(out / "r.json"), "--json"]
        done = run(source, "-o", out / "d", "--store", store, *options, "--manifest", out / "m.jsonl")
        assert done.returncode == 1, done.stderr
    stored = json.loads(done.stdout)["stored"]
    assert stored == len(STORED) * len(HOPPED), done.stderr
    rows_of = [json.loads(line) for line in (out / "m.jsonl").read_text().splitlines()]
    assert len(rows_of) == stored
    assert sum("***" in (row["etag"] or "") for row in rows_of) == 2 * len(HOPPED)
    everything = told_by(done, out)
    for secret in HOPPED.values():
        for form in (*forms(secret), base64.b64encode(secret.encode())[:-4], quote(secret).encode()):
            assert form not in everything, everything[max(everything.find(form) - 200, 0) :][:400]


@pytest.mark.parametrize(
    "said",
    [
        lambda marker: [listing([], marker), listing([], marker)],
        lambda marker: [listing([], marker), ok(b"{")],
        lambda marker: [listing([], marker), status(503)],
    ],
)
@pytest.mark.parametrize("spell", [str, lambda text: b64(b64(text)), lambda text: text.encode().hex()])
def test_what_a_listing_says_of_credentials_is_cut(
    spell: Callable[[str], str], said: Callable[[str], list[Any]], tmp_path: Path
) -> None:
    """In its markers, which stand in URLs and in messages."""
    marker = spell(HEADER)
    with Server(default=ok(b"x")) as server:
        server.routes["/list"] = Nth(*said(marker))
        out = tmp_path / "out"
        options = ("-H", f"X-Api-Key: {HEADER}", "-vv", "--retries", "1", "--backoff", "10ms")
        done = run(server.url, "-o", out, *options, "--report", tmp_path / "r.json")
    assert done.returncode == 4, done.stderr
    shown = done.stdout + done.stderr + (tmp_path / "r.json").read_text()
    assert "***" in shown
    assert marker not in shown
    assert HEADER not in shown
    assert marker.encode() not in left_in(out)


def test_names_of_a_listing_with_credentials_are_no_names(tmp_path: Path) -> None:
    with Server(default=ok(b"x")) as server:
        server.routes["/list"] = listing(["a", f"b-{HEADER}", "c"])
        options = ("-H", f"X-Api-Key: {HEADER}", "-v", "--failures", tmp_path / "f.jsonl")
        done = run(server.url, "-o", tmp_path / "out", *options)
    assert done.returncode == 1, done.stderr
    assert "bad-name" in (tmp_path / "f.jsonl").read_text()
    assert HEADER.encode() not in told_by(done, tmp_path)
