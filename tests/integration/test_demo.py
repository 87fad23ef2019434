"""``demo``, ``serve`` and the library."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Job, command, environment

import downloader
from downloader import BootError, Config, ConfigError, DestinationError, DownloaderError, InUse

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_demo_downloads_all_files(run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    env = {"TMPDIR": str(tmp_path / "tmp")}
    done = run_downloader("demo", "--files", 500, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "500 of 500 right" in done.stdout
    assert "demo-files/" in done.stdout
    said = re.search(r"\$ (.+) https://127.0.0.1:", done.stderr)
    assert said is not None
    told = re.search(r"^  (.+) verify (\S+)", done.stdout, re.MULTILINE)
    assert told is not None
    assert told[1] == said[1]
    # The command exists, wherever this was started from.
    again = subprocess.run(
        f"{told[0]}", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert sorted(os.listdir(tmp_path)) == ["demo-files", "tmp"]
    assert os.listdir(tmp_path / "tmp") == []
    assert len(list((tmp_path / "demo-files").glob("file-*"))) == 500
    again = run_downloader("demo", "--files", 500, cwd=tmp_path, env=env)
    assert (again.returncode, "500 of 500 right" in again.stdout) == (0, True)


@pytest.mark.parametrize("argv", ["-m downloader demo --files 50", "-m diagnostics"])
def test_machine_without_ipv4(argv: str, tmp_path: Path) -> None:
    if os.geteuid() or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("only root can have a network of its own")
    script = "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script + shlex.join([sys.executable, *argv.split()])],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.stderr.startswith(("RTNETLINK", "unshare:", "Cannot")):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert "50 of 50 right" in done.stdout or "HTTPS is concurrent" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_interrupted(start: Callable[..., Job], tmp_path: Path, number: int) -> None:
    (tmp_path / "tmp").mkdir()
    job = start("demo", "--files", 200_000, cwd=tmp_path, env={"TMPDIR": str(tmp_path / "tmp")})
    job.until(lambda: list(tmp_path.glob("demo-files/file-*")))
    job.kill(number)
    assert job.wait(20) == 130
    job.alone()
    assert os.listdir(tmp_path / "tmp") == []


def test_demo_in_an_unwritable_directory(run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    done = run_downloader("demo", "-o", "taken", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("downloader: error: -o taken: ")


def test_serve_announces(dev_server: Callable[..., Any], run_downloader: Run, tmp_path: Path) -> None:
    server = dev_server(files=3, size="5-5", page=2, tls=True, delay="0-1ms", workers=2, next_file=True)
    assert server.url.startswith("https://127.0.0.1:")
    done = run_downloader(server.url, "-o", tmp_path, "--cacert", server.ca, "--json")
    assert json.loads(done.stdout)["bytes"] == 15
    port = server.url.rpartition(":")[2]
    taken = run_downloader("serve", "--port", port)
    assert taken.returncode == 2
    assert taken.stderr.startswith("downloader: error: cannot listen on 127.0.0.1 port ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_exits_on_a_signal(number: int) -> None:
    with subprocess.Popen(command("serve"), env=environment(), stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline().startswith("listening http://127.0.0.1:")
        process.send_signal(number)
        assert process.wait(10) in (0, 130)
        assert process.stderr.read() == ""


# the library


def test_public_names_exist() -> None:
    assert sorted(downloader.__all__) == downloader.__all__
    for name in downloader.__all__:
        assert getattr(downloader, name) is not None
    assert set(downloader.__all__) <= set(dir(downloader))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = downloader.nonsense
    script = (
        "import sys, downloader; print(sorted({'ssl', 'gevent', 'requests', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_download(
    dev_server: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = dev_server(files=25)
    config = Config(source=server.url, output=str(tmp_path / "d"), workers=1)
    report = downloader.download(config)
    assert (report.listed, report.stored, report.complete, report.exit_code) == (25, 25, True, 0)
    assert downloader.download(config).skipped == 25
    assert capfd.readouterr() == ("", "")


def test_download_raises_documented_errors(tmp_path: Path, start: Callable[..., Job]) -> None:
    for kind in (BootError, ConfigError, DestinationError, InUse):
        assert issubclass(kind, DownloaderError)
    with pytest.raises(ConfigError, match="standard input"):
        downloader.download(Config(source="-", output="d"))
    with pytest.raises(ConfigError, match="must be 0 to 1,000,000"):
        Config(source="http://h", output="d", retries=-1)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        downloader.download(Config(source="http://h", output=str(tmp_path / "file")))
    early = downloader.download(Config(source="http://127.0.0.1:1", output=str(tmp_path / "d"), retries=0))
    assert (early.exit_code, early.complete) == (4, False)
    assert "Connection refused" in str(early.stopped_by)
    job = start("-", "-o", tmp_path / "used", stdin=subprocess.PIPE)
    with job.process.stdin, pytest.raises(InUse, match=f"process {job.pid}"):  # noqa: PT012
        job.process.stdin.write(b"http://127.0.0.1:1/x\n")  # nothing starts before the first line
        job.process.stdin.flush()
        job.until(lambda: len(job.children()) >= 2)
        downloader.download(Config(source="http://h", output=str(tmp_path / "used")))
    (tmp_path / "l.txt").write_text("nonsense\n")
    assert (
        downloader.download(Config(source=str(tmp_path / "l.txt"), output=str(tmp_path / "d"))).failed == 1
    )
    with pytest.raises(ConfigError, match="another source"):
        downloader.download(Config(source="http://h", output=str(tmp_path / "d")))
