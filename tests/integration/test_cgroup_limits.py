"""A job in a control group with a CPU quota or a memory limit, of either version."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import DevServer, command, environment, report_of

Limited = Callable[[str, dict[str, str]], Path]
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@pytest.fixture
def limited() -> Iterator[Limited]:
    """Return a function that makes a group with a controller and limits (file: value), by version."""
    with contextlib.ExitStack() as made:

        def make(controller: str, limits: dict[str, str]) -> Path:
            for root in (f"/sys/fs/cgroup/{controller}", "/sys/fs/cgroup"):
                group = Path(root) / f"test-{os.getpid()}-{controller}"
                names = [name for name in limits if Path(root, name).exists() or root.endswith("cgroup")]
                try:
                    group.mkdir()
                except OSError:
                    continue
                made.callback(group.rmdir)
                usable = [name for name in names if (group / name).exists()]
                for name in usable:
                    (group / name).write_text(limits[name])
                if usable and (group / "cgroup.procs").exists():
                    return group
            pytest.skip(f"no control group with {controller} can be made here")

        yield make


def run_in(group: Path, *argv: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", ENTER, str(group), *command(*argv, "--json", "--progress", "none")],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_cpu_quota_bounds_the_workers(
    limited: Limited, dev_server: Callable[..., DevServer], tmp_path: Path
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one CPU only")
    group = limited("cpu", {"cpu.max": "90000 100000", "cpu.cfs_quota_us": "90000"})
    server = dev_server(files=20)
    done = run_in(group, server.url, "-o", tmp_path / "d")
    assert report_of(done)["workers"] == 1
    done = run_in(group, server.url, "-o", tmp_path / "e", "--workers", "2")
    assert report_of(done)["workers"] == 2


def test_a_memory_limit_bounds_the_connections(
    limited: Limited, dev_server: Callable[..., DevServer], tmp_path: Path
) -> None:
    limit = str(132 << 20)
    group = limited("memory", {"memory.max": limit, "memory.limit_in_bytes": limit})
    server = dev_server(files=800, delay="2ms")
    # 32 in each worker would be opened at once.
    done = run_in(group, server.url, "-o", tmp_path / "d", "--workers", "2", "--pipeline", "off")
    found = report_of(done)
    assert found["stored"] == 800
    assert found["connections_peak"] <= 2 * 8
    assert found["connection_limit"]["max"] == 8


TAKES_ALL = """
import os, sys
class Finder:
    def find_spec(self, name, path, target=None):
        worker = name == "downloader.worker.worker" and not os.path.exists({marker!r})
        if worker or name == "downloader.sinks.shards.publisher.part":
            open({marker!r}, "a").close()
            b"x" * (600 << 20)
sys.meta_path.insert(0, Finder())
"""


def test_a_memory_limit_that_kills_is_named(
    limited: Limited, dev_server: Callable[..., DevServer], tmp_path: Path
) -> None:
    """The first worker takes more than there is, and so does every publisher of shards."""
    limit = str(400 << 20)
    names = ("memory.max", "memory.swap.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    group = limited("memory", {name: "0" if "swap.max" in name else limit for name in names})
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(TAKES_ALL.format(marker=str(tmp_path / "marker")))
    server = dev_server(files=5)
    argv = (server.url, "-o", tmp_path / "d", "--workers", "1", "--store", "tar")
    done = run_in(group, *argv, PYTHONPATH=str(site))
    worker, *_, publisher = done.stderr.splitlines()
    assert "died (signal SIGKILL; the memory limit of 400.0 MiB (memory." in worker
    assert ") has killed 1 so far: give more memory, or fewer --workers or --connections); its" in worker
    assert "its process ended twice, killed by signal 9; the memory limit of 400.0 MiB (mem" in publisher
    assert ") has killed 3 so far: give more memory, or store with a smaller --shard-size" in publisher
    assert done.returncode == 4
