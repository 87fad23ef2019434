"""The main job in a cell: the origin's files through ``python -m downloader``, every byte compared.

    python main_job.py --url URL --cacert FILE

Prints one line of JSON: ``{"verdict": "exact"|"wrong", "wall_s", "files_per_second", "errors",
"versions"}``. What is on the disk and in the journal is compared by the tests' checker, which knows
what the origin serves and imports nothing of the downloader.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from checker import Truth, Wrong, check

FILES, LEAST, MOST = 2000, 100, 2000  # what the origin serves
WORKERS = 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--cacert", required=True)
    given = parser.parse_args()
    errors = {}
    with tempfile.TemporaryDirectory() as directory:
        destination = Path(directory) / "files"
        argv = [sys.executable, "-m", "downloader", given.url, "-o", str(destination)]
        argv += ["--cacert", given.cacert, "--workers", str(WORKERS), "--json", "--progress", "none"]
        began = time.monotonic()
        environment = dict(os.environ, PYTHONPATH=str(ROOT))
        ended = subprocess.run(
            argv, env=environment, capture_output=True, text=True, check=False, timeout=100
        )
        wall = time.monotonic() - began
        if ended.returncode:
            last = (ended.stderr.splitlines() or [""])[-1]
            errors["exit code %d: %s" % (ended.returncode, last)] = 1
        else:
            report = json.loads(ended.stdout)
            counts = [report[name] for name in ("listed", "stored", "failed", "workers", "worker_deaths")]
            if counts != [FILES, FILES, 0, WORKERS, 0]:
                errors["listed, stored, failed, workers, deaths: %s" % counts] = 1
            try:
                check(destination, Truth(FILES, LEAST, MOST))
            except Wrong as wrong:
                errors[str(wrong)] = 1
    result = {
        "verdict": "wrong" if errors else "exact",
        "wall_s": round(wall, 3),
        "files_per_second": round(FILES / wall),
        "errors": errors,
        "versions": {"python": "%s %s" % (platform.python_implementation(), platform.python_version())},
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
