"""``demo``: start a TLS file server on loopback, download from it, and verify every byte."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from downloader.config.config import Config
from downloader.engine.job import run_job
from downloader.errors import BootError
from downloader.process import isolation
from downloader.process.readiness import readable
from downloader.process.watching import ENDS_WITHIN, STALL_TIMEOUT, end, start
from downloader.reporting.console import note, say
from downloader.reporting.report import as_text
from downloader.testserver import content
from downloader.testserver.loopback import loopback

__all__ = ["run_demo", "serving"]

_SIZES = "100-2000"


@contextlib.contextmanager
def serving(*options: str) -> Iterator[list[str]]:
    """Run the test server in its own process; yield its URL and, with --tls, the path of its CA file."""
    argv, env = isolation.child("downloader.__main__:main", "serve", "--host", loopback(), *options)
    process = start(argv, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    try:
        # Not with a thread: this process forks afterwards, and one that was joined may not have ended yet.
        ready = readable(process.stdout, STALL_TIMEOUT)
        lines = [process.stdout.readline() for _ in range(2 if "--tls" in options else 1)] if ready else []
        words = [line.split() for line in lines]
        if not words or not all(len(pair) == 2 for pair in words):
            raise BootError("the demo's file server did not start")
        yield [pair[1] for pair in words]
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN)
        if process.poll() is None:
            end(process)


def _program() -> str:
    """Return how this program can be started here: ``downloader``, a path of it, or with ``python -m``."""
    python = Path(sys.executable)
    script = python.with_name("downloader")
    found = shutil.which("downloader")
    if found is not None and (not script.exists() or os.path.samefile(found, script)):
        return "downloader"
    path = script if script.exists() else python
    with contextlib.suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path)) + ("" if path.name == script.name else " -m downloader")


def run_demo(files: int, output: str) -> int:
    """Download ``files`` files into ``output``, verify the content of each, and return the exit code."""
    root, program = Path(output), _program()
    with serving("--tls", "--files", str(files), "--size", _SIZES) as (url, authority):
        say(f"A file server with {files:,} files listens at {url}; its CA is {authority}")
        note(f"$ {program} {url} -o {output} --cacert {authority}")
        config = Config(source=url, output=output, cacert=authority, restart=True)
        report, *_ = run_job(config)
    say(as_text(report))
    if report.exit_code:
        return report.exit_code
    wrong = _count_wrong(root, files)
    say(f"Every byte compared with what the server must have sent: {files - wrong:,} of {files:,} right")
    say(
        f"The files are in {output}/; remove it when you are done. Next, try your own:\n"
        f"  {program} https://your.server/prefix -o files       a file server\n"
        f"  {program} urls.txt -o files --layout mirror         a list of URLs, one a line\n"
        f"  {program} verify {output}              check that the files are unchanged"
    )
    return 1 if wrong else 0


def _count_wrong(root: Path, files: int) -> int:
    minimum, maximum = (int(part) for part in _SIZES.split("-"))
    wrong = 0
    for index in range(files):
        name = content.name_of(index)
        expected = b"".join(content.blocks(name.encode(), content.size_of(name.encode(), minimum, maximum)))
        try:
            wrong += (root / name).read_bytes() != expected
        except OSError:
            wrong += 1
    return wrong
