"""Run the fuzz targets and tests that need a patched process: pytest runs each ``wire_*.py`` in one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from budget import SECONDS
from harness import environment

HERE = Path(__file__).parent
RUN = """
from downloader.process import patching
patching.apply()
import sys, pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.timeout(600 + 10 * SECONDS)  # half a minute of CPU: minutes, on a busy machine
@pytest.mark.parametrize("name", ["connecting", "idle", "names", "reader", "pipeline", "session"])
def test_fuzz(name: str) -> None:
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "-o", f"timeout={300 + 2 * SECONDS}"]
    command = [sys.executable, "-c", RUN, *options, str(HERE / f"wire_{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
