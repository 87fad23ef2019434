"""Run a download from any program: ``downloader.download(config)``.

A program that is patched, has threads, or has imported ssl cannot fork safely. So the supervisor runs in a
new process, which receives the Config on its standard input (never in argv: it may contain secrets) and
returns the Report. When the program dies, the pipe closes and the run drains.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from threading import Thread
from time import monotonic
from typing import IO, TYPE_CHECKING

import msgspec

from downloader import errors
from downloader.config.config import Config
from downloader.config.contradictions import check_writable
from downloader.errors import UNDECODABLE, BootError, ConfigError, DownloaderError
from downloader.files.below import descriptor_of
from downloader.process import isolation
from downloader.process.standard_streams import outlive_stderr
from downloader.process.watching import stalled_text, start, watched
from downloader.reporting.record import Report

if TYPE_CHECKING:
    from downloader.engine.job import Finished

__all__ = ["Answer", "download", "serve_download"]


_TELL_EVERY = 1.0  # seconds


class Answer(msgspec.Struct, frozen=True):
    """The reply of the new process: a report, or the error that kept the run from starting."""

    report: Report | None = None
    error: str = ""
    message: str = ""


def download(config: Config) -> Report:
    """Run ``config`` in a new process, wait for it, and return its report.

    Safe from threads and from gevent, patched or not (waiting is cooperative where ``subprocess`` is
    patched). A run that ended early returns a Report with ``complete`` false and its ``exit_code``. Raises
    ConfigError (also for the source ``-``: standard input belongs to the caller), InUse, DestinationError,
    JournalError, UnsafeProcess, BootError.
    """
    if not isinstance(config, Config):
        raise ConfigError(f"download() takes a Config, not {type(config).__name__}")
    if config.source == "-":
        raise ConfigError("standard input cannot be the source of download(); give a file")
    if config.dry_run:
        raise ConfigError("download() has a report, and a dry run has none; use the command line for that")
    process = _start(config)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            message = config.encode()
            # The pipe breaks when the process exits before it reads; its exit status tells more.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(len(message).to_bytes(4, "big") + message)
                process.stdin.flush()
            # It watches its own processes, with a third of the time.
            with watched(process, 3 * config.stall_timeout) as stalled:
                text = process.stdout.read()
        except BaseException:
            # Ctrl-C, a killed greenlet, a timeout: closing the pipe makes the run drain.
            _close(process.stdin)
            with watched(process, 3 * config.stall_timeout):
                process.wait()
            raise
        _close(process.stdin)
        status = process.wait()
    if stalled():
        raise DownloaderError(
            f"the run's own process {stalled_text(3 * config.stall_timeout)}; the same call goes on"
        )
    try:
        answer = msgspec.json.decode(text, type=Answer)
    except UNDECODABLE:
        why = isolation.why_missing() if status == 1 else ""  # it has told what it did not find
        raise BootError(
            f"the run's own process ended with status {status} and no report{why and f'; {why}'}"
        ) from None
    if answer.report is not None:
        return answer.report
    kind = getattr(errors, answer.error, DownloaderError)
    raise kind(answer.message)


def _start(config: Config) -> subprocess.Popen[bytes]:
    """Start the new process; it gets the descriptors that are reports of ``config``, by their numbers."""
    named = set()
    for option, path in config.written_files:
        if (descriptor := descriptor_of(path, config.output)) is not None:
            check_writable(option, path, config.output)  # still: another may have its number by now
            named.add(descriptor)
    others = [each for each in named if each > 2]
    # Its standard output is for the answer; it moves that away.
    output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3) if 1 in named else -1
    try:
        argv, env = isolation.child("downloader.api:serve_download", str(output), dest=config.local_output)
        return start(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if _is_open(2) else subprocess.DEVNULL,
            env=env,
            pass_fds=[*others, *([output] if output >= 0 else [])],
        )
    finally:
        if output >= 0:
            os.close(output)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


def serve_download() -> None:
    """Run the new process: read a Config, run it, write an Answer."""
    outlive_stderr()
    answer_to = _move_answer(int(sys.argv[1]))
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    config = Config.decode(sys.stdin.buffer.read(size))
    try:
        answer = Answer(_run(config, answer_to).report)
    except DownloaderError as error:
        answer = Answer(error=type(error).__name__, message=str(error))
    # The caller may have exited.
    with contextlib.suppress(BrokenPipeError), open(answer_to, "wb") as file:
        file.write(msgspec.json.encode(answer))


def _move_answer(output: int) -> int:
    """Return the descriptor that takes the answer; standard output is then ``output``, the caller's.

    -1 for ``output``: the run writes nothing to that.
    """
    answer_to = os.dup(1)
    if output < 0:
        output = os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    os.close(output)
    return answer_to


def _run(config: Config, answer_to: int) -> Finished:
    """Run ``config`` with its engine; drain when the caller has exited."""
    if config.engine == "ray":
        from downloader.cluster.driver.job import run_cluster

        # The driver's process has threads anyway, and ends on a signal.
        Thread(target=_end_with_caller, daemon=True).start()
        return run_cluster(config)
    from downloader.engine.job import run_job

    return run_job(config, ended=_Caller(answer_to).gone)


def _end_with_caller() -> None:
    from downloader.process.readiness import readable

    readable(0)
    os.kill(os.getpid(), signal.SIGTERM)


class _Caller:
    """The program that waits for the run, at the other ends of standard input and of ``answer_to``."""

    def __init__(self, answer_to: int) -> None:
        self._answer_to = answer_to
        self._told = 0.0

    def gone(self) -> bool:
        """Return whether it has closed its end of standard input; it sends nothing more on it.

        Tells it once a second that the run goes on: it sees how much was written.
        """
        from downloader.process.readiness import readable

        if monotonic() - self._told >= _TELL_EVERY:
            self._told = monotonic()
            with contextlib.suppress(BrokenPipeError):
                os.write(self._answer_to, b" ")  # in front of the JSON
        return readable(0, 0)
