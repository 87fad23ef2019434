"""Shared by the tests of ``python -m diagnostics watch``: the command line, and the programs that it
runs.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Job

Starter = Callable[..., Job]
Writer = Callable[..., list[object]]
WATCH = (sys.executable, "-m", "diagnostics", "watch")

PATCHED = """
import os, sys, time
from gevent import monkey; monkey.patch_all()
import gevent
real = monkey.get_original("time", "sleep")

def block(seconds=0.4):
    real(seconds)

def compute(seconds=0.4):
    # CPU time: on a busy machine the elapsed time is longer.
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
"""


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Starter]:
    """Return a function: ``watch("--max-block", "50ms", "--", ...)`` runs in a folder of its own, as a
    ``Job``."""
    with contextlib.ExitStack() as made:

        def begin(*args: object, **options: Any) -> Job:
            job = Job(*WATCH, *args, cwd=tmp_path, **options)
            made.callback(job.close)
            return job

        yield begin


@pytest.fixture
def program(tmp_path: Path) -> Writer:
    """Return a function: ``program(source)`` gives the argv that runs it."""

    def write(source: str, name: str = "app.py") -> list[object]:
        (tmp_path / name).write_text(source)
        return ["--", sys.executable, name]

    return write


def until(holds: Callable[[], object], job: Job, within: float = 60.0) -> None:
    """Wait until ``holds()``, by polling."""
    give_up = time.monotonic() + within
    while not holds():
        assert time.monotonic() < give_up, f"it never came to it: {job.out!r} {job.err!r}"
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def get(port: int, path: str) -> bytes:
    """Return the body of ``path``; retry until the server is up."""
    give_up = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return bytes(answer.read())
        except OSError:
            assert time.monotonic() < give_up
            time.sleep(0.02)
