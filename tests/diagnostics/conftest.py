"""Run ``python -m diagnostics`` as a user does, in a folder with the application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from harness import environment


class Answer(NamedTuple):
    """The result of a run."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The parsed output of ``--json``."""
        assert self.out, self.err
        return json.loads(self.out)

    @property
    def cause(self) -> tuple[str, str]:
        """Code and place of the cause."""
        cause = self.json["causes"][0]
        return cause["code"], cause["where"]

    @property
    def line(self) -> str:
        """The one line of an error."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


Run = Callable[..., Answer]
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the application ``name``.py into the folder; return the name."""

    def put(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return name

    return put


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run it in the folder, and end every process that it started."""
    mark = f"diagnostics-test-{os.getpid()}-{tmp_path.name}"

    def begin(*args: object, **options: Any) -> Answer:
        env = environment(DIAGNOSTICS_TEST=mark, **options.pop("env", {}))
        argv = [sys.executable, "-m", "diagnostics", *map(str, args)]
        done = subprocess.run(
            argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False, **options
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    yield begin
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DIAGNOSTICS_TEST") == mark and process.status() != "zombie":
                left.append(process.cmdline())
        except psutil.Error:
            continue
    assert not left
