"""Run the real command line in a process of its own, and collect what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hub_watch
from checker import agree

ROOT = Path(__file__).resolve().parents[2]
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")


@dataclass(frozen=True)
class Result:
    """The result of a run. ``failures`` by name; ``files`` are all files in the destination but the tool's
    own directory, by relative path; ``stderr`` is its standard error."""

    exit: int
    report: dict[str, Any]
    failures: dict[str, dict[str, Any]]
    files: dict[str, bytes]
    stderr: str

    @property
    def codes(self) -> dict[str, str]:
        """The code of each failed file."""
        return {name: failure["code"] for name, failure in self.failures.items()}


def download(
    source: str,
    dest: Path,
    *options: str,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
    timeout: float = 60,
) -> Result:
    """Run ``python -m downloader source -o dest options`` in a clean environment plus ``env``. HOME is
    ``home`` beside ``dest``, unless given. Run the checker at the end."""
    home = dest.parent / "home"
    home.mkdir(exist_ok=True)
    failures = dest.parent / f"{dest.name}.failures.jsonl"
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(home), **(env or {})}
    watch = hub_watch.environment()
    if watch:
        environment |= watch | {"PYTHONPATH": f"{watch['PYTHONPATH']}:{environment['PYTHONPATH']}"}
    command = [sys.executable, "-m", "downloader", source, "-o", str(dest), "--json"]
    command += ["--failures", str(failures), "--progress", "none", *options]
    done = subprocess.run(
        command,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=home,
        check=False,
    )
    report = json.loads(done.stdout) if done.stdout.strip() else {}
    agree(dest, done.returncode, report)
    lines = failures.read_text().splitlines() if failures.exists() else []
    records = [json.loads(line) for line in lines]
    return Result(
        exit=done.returncode,
        report=report,
        failures={record["name"]: record for record in records},
        files=_files(dest),
        stderr=done.stderr,
    )


def _files(dest: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(dest)): path.read_bytes()
        for path in sorted(dest.rglob("*"))
        if path.is_file() and path.relative_to(dest).parts[0] != ".downloader"
    }
