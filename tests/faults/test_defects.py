"""A defect of our own is reported as one, and not as a failure of something else."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import AFTER_IMPORT

# A defect makes the second page of the list fail.
FEEDER_DEFECT = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.feeder.main"

    def change(feeder):
        batch = feeder._batch

        def broken(seq, page, **more):
            if seq:
                raise RuntimeError("a defect")
            return batch(seq, page, **more)

        feeder._batch = broken
"""
)

# Nothing of ours catches what ends the greenlet of the thirtieth request.
WORKER_DEFECT = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.worker.worker"

    def change(module):
        fetch, count = module.Worker._fetch, iter(range(1000))

        def broken(self, task):
            if next(count) == 30:
                raise {error}
            return fetch(self, task)

        module.Worker._fetch = broken
"""
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("RuntimeError('a defect')", "a child process failed: RuntimeError: a defect"),
        (
            "MemoryError",
            "a child process found no memory; free some, or use fewer --workers or --connections",
        ),
    ],
)
def test_error_that_no_greenlet_catches_ends_the_run(
    error: str,
    said: str,
    dev_server: Callable[..., Any],
    run_downloader: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """gevent would print it, and the run would wait for the file for ever."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(WORKER_DEFECT.format(error=error)))
    server = dev_server(files=100)
    argv = (server.url, "-o", tmp_path / "dest", "--workers", 1, "--lane", "requests")
    done = run_downloader(*argv, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 4, done.stderr
    assert done.stderr.splitlines()[-1] == f"downloader: error: {said}"
    assert run_downloader(*argv).returncode == 0


def test_feeder_defect_is_not_reported_as_a_broken_source(
    dev_server: Callable[..., Any], run_downloader: Callable[..., Any], tmp_path: Path
) -> None:
    """After a source broke, what is listed is still fetched; after a defect no further file is begun."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(FEEDER_DEFECT))
    server = dev_server(files=2000, delay="0.5s")
    argv = (server.url, "-o", tmp_path / "dest", "--workers", 1, "--connections", 1, "--pipeline", "off")
    done = run_downloader(*argv, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 4
    assert "a child process failed: RuntimeError: a defect" in done.stderr
    assert server.stats()["gets"] < 32  # the first batch
