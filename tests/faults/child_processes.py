"""Start a run whose processes are changed, and find its children."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness import DevServer, Job

Serve = Callable[..., DevServer]
Start = Callable[..., Job]
SITE = "sitecustomize.py"


def site(tmp_path: Path, text: str) -> dict[str, str]:
    """Return an environment in which ``text`` runs as ``sitecustomize`` in every new interpreter."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / SITE).write_text(textwrap.dedent(text))
    return {"PYTHONPATH": str(folder)}


def descendants(pid: int) -> list[int]:
    """Return the children of the supervisor that ``download()`` started in process ``pid``."""
    import psutil

    for child in psutil.Process(pid).children():
        return [grandchild.pid for grandchild in child.children()]
    return []


def until_running(job: Job, count: int) -> list[int]:
    """Return the pids of feeder and workers, as soon as all are forked."""
    job.until(lambda: len(descendants(job.pid)) >= count)
    return descendants(job.pid)


@contextlib.contextmanager
def fetching(program: Sequence[object], server: DevServer, dest: Path, gets: int) -> Iterator[Job]:
    """Run the argv ``program URL DEST``, which calls ``download()`` with two workers; end it at exit.

    Yields the job once all processes run, and more than ``gets`` files were requested.
    """
    job = Job(*program, server.url, dest)
    try:
        until_running(job, 3)
        server.until(lambda counters: counters["gets"] > gets)
        yield job
    finally:
        job.close()
