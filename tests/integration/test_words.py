"""What a person reads: the state of a job, -v, the help, the first Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import ROOT, Job
from servers import HANG, Nth, Server, ok, status

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_status_has_the_word_of_the_run(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    for name, files, word, code in (
        ("stored", {"a": ok(b"a")}, "complete", 0),
        ("failed", {"a": ok(b"a"), "b": status(404)}, "complete", 1),
    ):
        dest = tmp_path / name
        with Server(files=files) as server:
            done = run_downloader(server.url, "-o", dest)
        told = run_downloader("status", dest)
        assert (done.returncode, told.returncode) == (code, code)
        for text in (done.stdout, told.stdout):
            assert text.splitlines()[0].endswith(f"{name}: {word}"), text
        assert json.loads(run_downloader("status", dest, "--json").stdout)["complete"] is True
    dest = tmp_path / "interrupted"
    with Server(files={"a": ok(b"a"), "b": [HANG]}) as server:
        job = start(server.url, "-o", dest, "--workers", 1)
        job.until((dest / "a").exists)
        job.kill(signal.SIGINT)
        assert job.wait() == 130
        assert "SIGINT: finishing what is in flight; Ctrl-C again ends at once" in job.err
        told = run_downloader("status", dest)
    assert told.returncode == 4
    for text in (job.out, told.stdout):
        assert text.splitlines()[0].endswith("interrupted: not complete"), text


def test_v_names_each_failed_file_and_vv_each_retry(run_downloader: Run, tmp_path: Path) -> None:
    urls = tmp_path / "urls.txt"
    for number, (flag, failed, retried) in enumerate([((), 0, 0), (("-v",), 7, 0), (("-vv",), 7, 1)]):
        routes = {f"/{n}?token=SESAME": status(404) for n in range(7)}
        with Server(routes={**routes, "/r?token=SESAME": Nth(status(500), ok(b"r"))}) as server:
            urls.write_text("".join(f"{server.url}{target}\n" for target in [*routes, "/r?token=SESAME"]))
            done = run_downloader(urls, "-o", tmp_path / str(number), *flag, "--backoff", "10ms")
        assert done.returncode == 1
        assert len(re.findall(r"^downloader: failed: \S+: http-404", done.stderr, re.M)) == failed, (
            done.stderr
        )
        assert (
            len(re.findall(r"^downloader: attempt 1 failed: \S+: http-500", done.stderr, re.M)) == retried
        )
        assert "SESAME" not in done.stdout + done.stderr


def test_help_is_written_as_a_person_writes(run_downloader: Run) -> None:
    text = run_downloader("--help").stdout
    assert "[default: 1G]" in " ".join(text.split())
    for command in ("fetch", "status", "verify", "serve", "demo"):
        assert run_downloader(command, "-h").stdout == run_downloader(command, "--help").stdout != ""
    defaults = re.findall(r"\[default: ([^\]]*)\]", " ".join(text.split()))
    assert defaults
    for default in defaults:
        assert not (default.isdigit() and int(default) > 1_000_000), default


def test_paths_of_a_config_have_a_type(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    fields = ("source", "output", "journal", "report", "failures", "manifest", "cacert", "netrc")
    arguments = ", ".join(f"{name}=Path('x')" for name in fields)
    lines = ["from pathlib import Path", "from downloader import Config", f"made = Config({arguments})"]
    lines += [f"text: str = made.{name}" if name == "source" else f"text = made.{name}" for name in fields]
    (tmp_path / "p.py").write_text("\n".join([*lines, "Config(source=1)", ""]))
    argv = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", tmp_path / "p.py"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.count("error:") == 1, done.stdout
    assert f"p.py:{len(lines) + 1}: error" in done.stdout
