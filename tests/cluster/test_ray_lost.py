"""A local cluster: who can reach it, and what is left when its servers or the driver are killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from harness import DevServer, Job, command, environment, serving
from test_slice_attempts import until

pytest.importorskip("ray")

# Asks the cluster for what is stored in it, as `ray.init` does first; from its own loopback address.
STRANGER = """
import sys
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).internal_kv_keys(b"", None, timeout=10)
    print("joined")
except Exception as error:
    print(type(error).__name__)
"""


def cluster_of(job: Job) -> list[psutil.Process]:
    """Return all processes that the driver has below it."""
    return psutil.Process(job.pid).children(recursive=True)


def argv_of(process: psutil.Process) -> str:
    """Return what the process was started with, "" if it has ended: those of slices come and go."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def named(processes: list[psutil.Process], word: str) -> psutil.Process:
    return next(each for each in processes if word in argv_of(each))


def listening_addresses(processes: list[psutil.Process]) -> set[str]:
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            sockets = process.net_connections()
            found |= {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
    return found


def stranger(address: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, address],
        env=environment(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", **env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.strip()


def check_gone(processes: list[psutil.Process], directory: Path) -> None:
    """Check that nothing is left; the guardian needs a moment after the driver's end."""
    assert not psutil.wait_procs(processes, 20)[1]
    until(lambda: not directory.exists())


def test_local_cluster_is_ours_alone_and_its_loss_is_told(tmp_path: Path) -> None:
    dest, report = tmp_path / "d", tmp_path / "report.json"
    with serving(files=4000, delay="200ms") as server:
        job = Job(
            *command(
                *(server.url, "-o", dest, "--engine", "ray", "--ray-address", "local", "--json"),
                *("--slice-files", 100, "--connections", 4, "--pipeline", "off", "--report", report),
            )
        )
        try:
            job.until(lambda: list(dest.glob(".downloader/cluster/done/*")))
            processes = cluster_of(job)
            listening = listening_addresses([*processes, psutil.Process(job.pid)])
            assert listening
            assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

            gcs = named(processes, "gcs_server")
            argv = " ".join(gcs.cmdline())
            (directory,) = set(re.findall(r"/\S*?/downloader-[^/]*", argv))
            assert Path(directory).stat().st_mode & 0o777 == 0o700
            raylet = named(processes, "raylet/raylet")
            address = re.findall(r"gcs-address=(\S+)", " ".join(raylet.cmdline()))[0]
            assert stranger(address, RAY_AUTH_MODE="disabled") == "AuthenticationError"
            wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
            assert stranger(address, **wrong) == "AuthenticationError"
            token = gcs.environ()["RAY_AUTH_TOKEN"]
            assert stranger(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token) == "joined"
            assert token not in argv

            raylet.kill()
            assert job.wait(150) == 4
            told = json.loads(job.out)
            assert json.loads(report.read_text()) == told
            assert (told["complete"], told["exit_code"]) == (False, 4)
            assert told["stored"] >= 100
            assert told["stopped_by"].startswith("the Ray cluster was lost: Ray ")
            (line,) = (line for line in job.err.splitlines() if "error:" in line)
            assert line == f"downloader: error: {told['stopped_by']}"
            assert "the same command goes on" in line
            check_gone(processes, Path(directory))
        finally:
            job.close()


PROGRAM = """
import sys
from downloader import Config, download
report = download(Config(source=sys.argv[1], output=sys.argv[2], engine="ray", ray_address="local",
                         slice_files=100, connections=4, pipeline=1, progress="none", stall_timeout=4.0))
print(report.exit_code, report.stored + report.skipped, report.stopped_by)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "number", "expected", "told"),
    [
        ("gcs_server", signal.SIGKILL, "4 ", "the Ray cluster was lost: Ray "),
        ("gcs_server", signal.SIGSTOP, "", ""),
        ("raylet/raylet", signal.SIGSTOP, "", ""),
        ("guardian:main", signal.SIGSTOP, "0 600 None", ""),
        (
            "guardian:main",
            signal.SIGKILL,
            "4 ",
            "the Ray cluster was lost: Ray ended its process: signal SIGKILL",
        ),
        ("caller", signal.SIGSTOP, "4 ", "the Ray cluster was lost: Ray did not answer for "),
        ("ray::slice", signal.SIGSTOP, "0 600 None", "runs again: its worker on"),
        ("ray::LimitsActor", signal.SIGSTOP, "0 600 None", ""),
    ],
)
def test_process_of_a_local_cluster_is_lost(
    tmp_path: Path, victim: str, number: int, expected: str, told: str
) -> None:
    """It ends, whatever it was; what it ends with is the truth, and nothing is left."""
    dest = tmp_path / "d"
    with serving(files=600, delay="100ms-200ms") as server:
        job = Job(sys.executable, "-c", PROGRAM, server.url, dest)
        processes: list[psutil.Process] = []
        try:
            job.until(lambda: list(dest.glob("file-*")))
            processes = cluster_of(job)
            guardians = [each for each in processes if "guardian:main" in argv_of(each)]
            caller = next(each for each in guardians if each.ppid() in {one.pid for one in guardians})
            target = caller if victim == "caller" else named(processes, victim)
            os.kill(target.pid, number)
            assert job.wait(200) == 0, job.err
            code, count, *_ = job.out.split()
            assert job.out.startswith(expected), job.out + job.err
            assert code == "4" or (code, count) == ("0", "600")
            assert told in job.out + job.err
            if (victim, number) != ("guardian:main", signal.SIGKILL):
                assert not psutil.wait_procs(processes, 20)[1]
        finally:
            for each in processes:
                with contextlib.suppress(psutil.Error):
                    each.kill()
            job.close()


@pytest.mark.slow
def test_two_local_clusters_end_apart(dev_server: Callable[..., DevServer], tmp_path: Path) -> None:
    """The driver of one is killed; the other one goes on."""
    server = dev_server(files=1500, delay="100ms-200ms")
    jobs = [
        Job(
            *command(
                *(server.url, "-o", tmp_path / name, "--engine", "ray", "--ray-address", "local"),
                *("--slice-files", 300, "--connections", 8, "--pipeline", "off"),
            )
        )
        for name in "ab"
    ]
    try:
        for job, name in zip(jobs, "ab", strict=True):
            job.until(lambda name=name: list((tmp_path / name).glob("file-*")), 120)  # type: ignore[misc]
        killed = cluster_of(jobs[0])
        jobs[0].kill()
        assert not psutil.wait_procs(killed, 20)[1]
        assert jobs[1].wait(200) == 0, jobs[1].err
        assert len(list((tmp_path / "b").glob("file-*"))) == 1500
    finally:
        for job in jobs:
            job.close()
