"""One cluster for the tests of this directory."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest
from harness import AFTER_IMPORT
from ray_nodes import Nodes, ray_nodes

# On the nodes: the process of slice 1 of a job into a directory "kills" kills itself.
_KILLS = """
MODULE = "downloader.engine.job"

def change(job):
    import os, signal
    run = job.run_job

    def run_job(config, **given):
        if config.slice.path.endswith("/00000001.items") and config.output.endswith("/kills"):
            os.kill(os.getpid(), signal.SIGKILL)
        return run(config, **given)

    job.run_job = run_job
"""


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Return a cluster of a head and two nodes."""
    root = tmp_path_factory.mktemp("nodes")
    (root / "sitecustomize.py").write_text(_KILLS + textwrap.dedent(AFTER_IMPORT))
    with ray_nodes(root / "scratch", PYTHONPATH=str(root)) as made:
        yield made
