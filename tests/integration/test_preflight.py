"""--preflight probe: the diagnostics measure a process like a worker before anything is fetched."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from harness import AFTER_IMPORT, serving

# Found through PYTHONPATH in every process: a client whose requests wait in the real sleep.
BLOCKS = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.http.requests_client"

    def change(module):
        from gevent.monkey import get_original

        sleep, read = get_original("time", "sleep"), module.RequestsClient.read

        def blocking(self, *args):
            sleep(0.2)
            return read(self, *args)

        module.RequestsClient.read = blocking
"""
)

# Records that requests was imported, and whether gevent had patched the process by then.
TELLS = (
    AFTER_IMPORT
    + """
    MODULE = "requests"

    def change(module):
        from gevent import monkey

        with open(os.environ["IMPORTS"], "a") as file:
            print(monkey.is_module_patched("ssl"), file=file)
"""
)


@pytest.mark.parametrize(("listed", "processes"), [("by the server", 2), ("in a file", 1)])
def test_only_patched_processes_that_need_requests_import_it(
    run_downloader, tmp_path: Path, listed: str, processes: int
) -> None:
    """After patching, and only in processes that make requests: all processes may start on one shared
    core.
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(TELLS))
    names = tmp_path / "names.txt"
    with serving(files=3, size="100") as server:
        names.write_text("".join(f"{server.url}/get/file-{n:010d}\n" for n in range(3)))
        source = server.url if listed == "by the server" else names
        env = {"PYTHONPATH": str(tmp_path), "IMPORTS": str(tmp_path / "imports")}
        done = run_downloader(source, "-o", tmp_path / "d", "--workers", 1, env=env)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "imports").read_text().split() == ["True"] * processes


def test_concurrent_worker_starts(run_downloader, tmp_path: Path) -> None:
    with serving(files=20, size="100") as server:
        done = run_downloader(server.url, "-o", tmp_path / "d", "--preflight", "probe")
        assert done.returncode == 0, done.stderr


def test_serial_worker_is_refused(run_downloader, tmp_path: Path) -> None:
    text = textwrap.dedent(BLOCKS)
    (tmp_path / "sitecustomize.py").write_text(text)
    line = 1 + text[: text.index("sleep(0.2)")].count("\n")
    with serving(files=20, size="100") as server:
        argv = (server.url, "-o", tmp_path / "d", "--preflight", "probe")
        done = run_downloader(*argv, env={"PYTHONPATH": str(tmp_path)})
        assert done.returncode == 3
        assert "--preflight probe: HTTPS is serialized in a worker" in done.stderr
        assert f"blocking-call {tmp_path}/sitecustomize.py:{line}" in done.stderr
        assert not (tmp_path / "d").exists()
        assert server.stats()["requests"] == 0
