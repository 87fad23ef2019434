"""Drivers of --engine ray: that of a program which calls download(), and one that dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from harness import DevServer, Job, environment

pytest.importorskip("ray")

PROGRAM = """
import sys
from pathlib import Path
from downloader import Config, download
report = download(Config(source=sys.argv[1], output=Path(sys.argv[2]), engine="ray", ray_address="local",
                         slice_files=100, progress="none"))
print(report.exit_code, report.stored, report.nodes, report.slices.get("done"))
"""


def test_download_of_a_program_runs_over_ray(dev_server: Callable[..., DevServer], tmp_path: Path) -> None:
    server = dev_server(files=200)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, tmp_path / "d"],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.split() == ["0", "200", "1", "2"], done.stdout + done.stderr


def test_status_after_a_driver_has_died(
    dev_server: Callable[..., DevServer],
    start: Callable[..., Job],
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """No slice runs when nobody would take it in; and nothing that Ray has started is left."""
    server, dest = dev_server(files=4000, delay="300ms"), tmp_path / "d"
    running = dest / ".downloader/cluster/running.json"
    job = start(
        *(server.url, "-o", dest, "--engine", "ray", "--ray-address", "local", "--slice-files", 2000),
        *("--connections", 2, "--pipeline", "off"),
    )
    job.until(lambda: running.exists() and json.loads(running.read_text())["running"])
    told = json.loads(run_downloader("status", dest, "--json").stdout)
    assert told["slices"]["running"] > 0
    started = psutil.Process(job.pid).children(recursive=True)
    assert any("gcs_server" in " ".join(process.cmdline()) for process in started)
    job.kill(signal.SIGKILL)
    job.wait()
    assert not psutil.wait_procs(started, 20)[1]
    told = json.loads(run_downloader("status", dest, "--json").stdout)
    assert told["slices"]["running"] == 0
    assert told["complete"] is False
