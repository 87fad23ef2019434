"""Start ``nodes.py`` and jobs on it, for the tests of this directory and the campaign of node losses."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from harness import Job, command, environment

__all__ = ["Nodes", "ray_nodes", "slice_processes"]

_NODES = Path(__file__).with_name("nodes.py")


class Nodes:
    """A cluster of a head without CPUs, and nodes of one CPU each with its own scratch directory.

    ``alive``: the numbers of the nodes, which tests may lose.
    """

    def __init__(self, scratch: Path, temporary: str, **env: str) -> None:
        self.temporary = temporary
        self.scratch = scratch
        self.env = {"RAY_TMPDIR": temporary}
        self._process = subprocess.Popen(
            [sys.executable, str(_NODES), str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(**self.env, **env),
        )
        self.address = self._answer()
        self.alive: list[int] = []

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the cluster ended"
        return line

    def tell(self, command: str) -> str:
        """Send a command (see ``nodes``), return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def add(self) -> int:
        """Add a node; return its number."""
        number = int(self.tell("add"))
        self.alive.append(number)
        return number

    def lose(self, how: str, number: int) -> None:
        """Lose a node by ``how``: "remove" or "kill"."""
        self.alive.remove(number)
        self.tell(f"{how} {number}")

    def options(self) -> list[str]:
        """Return the options that run a job here."""
        return ["--engine", "ray", "--ray-address", self.address, "--scratch", "$SCRATCH"]

    def job(self, *args: object, env: dict[str, str] | None = None) -> Job:
        """Start a job on the cluster."""
        return Job(*command(*args, *self.options()), env={**self.env, **(env or {})})

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()


@contextlib.contextmanager
def ray_nodes(scratch: Path, **env: str) -> Iterator[Nodes]:
    """Run a cluster of a head and two nodes, whose environment has ``env``."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    # Paths of Ray's sockets are long; they must fit into 107 bytes.
    temporary = tempfile.mkdtemp(prefix="r", dir="/tmp")
    try:
        nodes = Nodes(scratch, temporary, **env)
        try:
            for _ in range(2):
                nodes.add()
            yield nodes
        finally:
            nodes.close()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def slice_processes(dest: Path) -> set[int]:
    """Return the processes, with their children, that run slices below ``dest``'s parent directory."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                argv = Path(f"/proc/{entry}/cmdline").read_bytes()
                where = os.readlink(f"/proc/{entry}/cwd")
                if b"slice_process:main" in argv and where.startswith(str(dest.parent)):
                    found.add(int(entry))
    return found
