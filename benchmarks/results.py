"""Keep the measurements in one JSON file: a record for each (cell, client, round).

The file is rewritten after every run, so that after any interruption the next start continues behind the
last finished run.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Results", "Run", "environment_of"]

_PACKAGES = (
    "gevent", "requests", "urllib3", "httptools", "aiohttp", "uvloop", "httpx", "pycurl",
    "grequests", "geventhttpclient", "aiodns", "pycares", "dnspython",
)  # fmt: skip
_PROGRAMS = {
    "curl": ["curl", "--version"],
    "wget2": ["wget2", "--version"],
    "aria2": ["aria2c", "--version"],
    "nginx": ["nginx", "-v"],
}


@dataclass(frozen=True)
class Run:
    """One run of one client. ``wrong``: files that are missing or differ from the origin's.

    ``seconds`` is None where it never finished; ``hung`` is how often it was killed before because its time
    was over; ``said`` has the figures that the client itself gave. ``on``: the machine and the interpreter,
    "" for those of ``Results.measured_on``.
    """

    cell: str
    client: str
    round: int
    files: int
    seconds: float | None
    cpu_seconds: float
    memory_mb: float
    wrong: int
    hung: int
    failure: str = ""
    at: str = ""
    said: dict[str, float] = field(default_factory=dict)
    on: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """The key that identifies a run."""
        return self.cell, self.client, self.round

    @property
    def rate(self) -> float | None:
        """Files per second, of the whole process from its start to its end."""
        return self.files / self.seconds if self.seconds else None


class Results:
    """The runs so far, and the tables of ``main_job``. With ``path`` None they are kept in memory only."""

    def __init__(self, path: Path | None, fresh: bool = False) -> None:
        self._path = path
        self._runs: dict[tuple[str, str, int], Run] = {}
        self.reports: dict[str, list[dict[str, str]]] = {}
        self.measured_on: dict[str, Any] = {}
        if path is not None and path.exists() and not fresh:
            kept = json.loads(path.read_text())
            for record in kept.get("runs", []):
                run = Run(**record)
                self._runs[run.key] = run
            self.reports = kept.get("reports", {})
            self.measured_on = kept.get("measured_on", {})
        here = environment_of()
        if not self.measured_on:
            self.measured_on = here
        self.begun_elsewhere = bool(self._runs) and {**self.measured_on, "date": ""} != {**here, "date": ""}
        self._here = "" if place_of(here) == place_of(self.measured_on) else place_of(here)

    def has(self, cell: str, client: str, turn: int, files: int) -> bool:
        """Return whether this run is recorded with the same number of files: a cell can have changed
        since.
        """
        run = self._runs.get((cell, client, turn))
        return run is not None and run.files == files

    def add(self, run: Run) -> None:
        """Record ``run``, which was made here, and save at once."""
        self._runs[run.key] = replace(run, on=self._here)
        self.save()

    def forget(self, cell: str) -> None:
        """Discard all runs of ``cell``."""
        self._runs = {key: run for key, run in self._runs.items() if run.cell != cell}

    def elsewhere(self) -> dict[str, list[str]]:
        """Return the cells with runs that were not made on ``measured_on``, by where and when they were."""
        found: dict[str, list[str]] = {}
        for run in self._runs.values():
            if run.on:
                cells = found.setdefault(f"{run.on}, {run.at[:10]}", [])
                if run.cell not in cells:
                    cells.append(run.cell)
        return found

    def of(self, cell: str, client: str) -> list[Run]:
        """Return the rounds of one client in one cell."""
        return [run for run in self._runs.values() if (run.cell, run.client) == (cell, client)]

    def clients(self, cell: str, order: Iterable[str]) -> list[str]:
        """Return those of ``order`` that have run in ``cell``."""
        return [client for client in order if self.of(cell, client)]

    def save(self) -> None:
        """Write the file atomically."""
        if self._path is None:
            return
        record = {
            "measured_on": self.measured_on,
            "runs": [asdict(run) for run in self._runs.values()],
            "reports": self.reports,
        }
        beside = self._path.with_name(f".{self._path.name}.new")
        beside.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        os.replace(beside, self._path)


def place_of(environment: dict[str, Any]) -> str:
    """Return machine and interpreter of ``environment``, in a few words."""
    return f"{environment['processor']}, python {environment['versions']['python']}"


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def environment_of() -> dict[str, Any]:
    """Return the machine, the versions of everything involved, and the date."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    # How Python was built makes a difference of a twentieth: distributions use profile-guided optimization.
    system = " (the distribution's)" if sys.base_prefix == "/usr" else ""
    versions = {"python": f"{platform.python_version()}{system}"}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    for name, argv in _PROGRAMS.items():
        if shutil.which(argv[0]):
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            versions[name] = _version_in(done.stdout or done.stderr)
    return {
        "processor": model,
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "versions": versions,
        "date": now()[:10],
    }


def _version_in(text: str) -> str:
    """Return the first word of the first line that begins with a digit, behind a slash or not."""
    words = (word.rpartition("/")[2] for word in (text.splitlines() or [""])[0].split())
    return next((word for word in words if word[:1].isdigit()), "?")
