"""Run the kill campaign at length: ``python benchmarks/chaos.py [RUNS] [FIRST_SEED]``.

The runs are those of ``tests/faults/test_kill.py``. Each prints what it killed, when, and how many files
were fetched again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    runs, first = [*sys.argv[1:], *("150", "0")[len(sys.argv) - 1 :]][:2]
    test = "tests/faults/test_kill.py::test_kill_campaign"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", test, "-rP", "-q", "--no-header", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "CHAOS": runs, "CHAOS_SEED": first},
        check=False,
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
