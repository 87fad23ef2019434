"""Check at the start that the reports can be written, and write them at the end."""

from __future__ import annotations

import datetime
import os
import tempfile
from dataclasses import dataclass
from errno import EACCES
from functools import partial
from typing import BinaryIO

from diagnostics.errors import UsageError
from diagnostics.reports.junit import junit
from diagnostics.reports.outcome import Outcome
from diagnostics.reports.page import page
from downloader.errors import DestinationError
from downloader.reporting.published_file import publish

__all__ = ["ReportFiles"]


@dataclass(frozen=True)
class ReportFiles:
    """The files that ``--junit`` and ``--report`` name; "" for one that was not asked for."""

    junit: str = ""
    page: str = ""

    def check(self) -> None:
        """Raise UsageError if one of them cannot be written, so that this is found before anything else."""
        if self.junit and self.page and os.path.realpath(self.junit) == os.path.realpath(self.page):
            raise UsageError(f"--junit and --report: both name {self.page}")
        for option, path in (("--junit", self.junit), ("--report", self.page)):
            if path:
                _check(option, path)

    def write(self, outcome: Outcome, fixed: bool) -> str:
        """Write them, each whole or not at all; return what could not be written, or ""."""
        now = datetime.datetime.now(datetime.timezone.utc)
        failures = []
        for path, make in ((self.junit, junit), (self.page, page)):
            if path:
                try:
                    publish(path, partial(_put, make(outcome, now, fixed)), mode=0o666)
                except DestinationError as error:
                    failures.append(str(error))
        return "; ".join(failures)


def _put(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def _check(option: str, path: str) -> None:
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.isdir(path):
        raise UsageError(f"{option}: {path} is a directory; name a file")
    try:
        if os.path.exists(path) and not os.access(path, os.W_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))
        if os.path.exists(path) and not os.path.isfile(path):
            return  # /dev/stdout, a named pipe: written as it is
        if not os.path.isdir(folder):
            raise UsageError(f"{option}: {path}: there is no directory {folder}; make it first")
        # It will be written beside that name first. Permissions alone do not show that this works.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be written: {error.strerror}; name another") from None
