"""Run a command transparently: with the same streams, signals and exit status as without this process.

The command has this process's streams, descriptors, process group and terminal. A signal that is sent to
the whole group (Ctrl-C, SIGWINCH, ``kill -TERM -PGID``) reaches it directly, and only a signal that was
sent to this process alone is forwarded. The receiver cannot tell the two apart. So a canary, another
process of the group, reports whether it got the same signal. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from diagnostics.errors import UsageError
from diagnostics.model import Start

__all__ = ["Command", "end_like", "started"]

_ALL = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_GROUP = 5  # milliseconds within which a signal reaches every process of a group
_QUERY = signal.SIGRTMAX
_PATIENCE = 5_000  # milliseconds that the canary may take, on a slow machine
_PR_SET_PDEATHSIG = 1


class _Inherited(NamedTuple):
    """What this process inherited, and the command inherits: the mask, and what happens on SIGCHLD."""

    mask: set[int | signal.Signals]
    on_child: Any


class Command:
    """A running command. Call ``wait()`` in the thread that started it."""

    def __init__(self, pid: int, canary: _Canary, before: _Inherited) -> None:
        self.pid = pid
        self._canary = canary
        self._before = before
        self._next: tuple[Start, list[str], dict[str, str]] | None = None

    def replace(self, start: Start, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Kill the command and have ``wait``, in its thread, start ``argv`` in its place, as ``start``
        tells."""
        self._next = start, list(argv), dict(env)
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(self.pid, signal.SIGKILL)

    def _replaced(self, status: int) -> bool:
        """Return whether the command was killed to start another one, which now runs."""
        if self._next is None or not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            return False
        start, argv, env = self._next
        self._next = None
        self.pid = _spawn(argv, env, self._before, start)
        return True

    def wait(self) -> int:
        """Forward signals until the command ends; return its wait status."""
        while True:
            number = signal.sigwaitinfo(_ALL).si_signo
            if number != signal.SIGCHLD:
                if not self._canary.has(number):
                    os.kill(self.pid, number)
                continue
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and not os.WIFSTOPPED(status):
                if self._replaced(status):
                    continue
                return status
            if pid:
                # Stop as well, for the shell to see it. SIGCONT is forwarded like any other signal.
                number = os.WSTOPSIG(status)
                os.kill(os.getpid(), number)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
                signal.pthread_sigmask(signal.SIG_BLOCK, {number})
                self._canary.has(number)  # remove it from what the canary reported


@contextlib.contextmanager
def started(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Command]:
    """Start ``argv``; until the block ends, block every signal, in threads started inside it, too.

    Raises UsageError when it cannot be executed.
    """
    before = _Inherited(signal.pthread_sigmask(signal.SIG_BLOCK, _ALL), signal.getsignal(signal.SIGCHLD))
    # Where it is ignored, the end of the command is not told.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with contextlib.closing(_Canary()) as canary:
            yield Command(_spawn(argv, dict(env), before), canary, before)
    finally:
        while signal.sigtimedwait(_ALL, 0) is not None:
            pass  # discard what was meant for the command, which has ended
        signal.signal(signal.SIGCHLD, before.on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)


def end_like(status: int) -> int:
    """Return the exit code of a command; if a signal terminated it, terminate this process by the same."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number in _ALL:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number  # reached as process 1 of a container, which the signal does not terminate


def _spawn(argv: Sequence[str], env: dict[str, str], before: _Inherited, start: Start | None = None) -> int:
    library = _library()  # loaded before the fork: little is safe in the child
    failed, tell = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            _execute(argv, env, before, library, start)
        except OSError as error:
            os.write(tell, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(tell)
    with open(failed, "rb") as source:
        if number := source.read():
            os.waitpid(pid, 0)
            raise UsageError(f"{argv[0]} cannot be executed: {os.strerror(int(number))}")
    return pid


def _execute(
    argv: Sequence[str],
    env: dict[str, str],
    before: _Inherited,
    library: ctypes.CDLL,
    start: Start | None,
) -> None:
    """In the child: undo Python's own settings, then execute ``argv``."""
    _die_with_parent(library)
    if env.get("LISTEN_PID") == str(os.getppid()):
        env["LISTEN_PID"] = str(os.getpid())  # socket activation by systemd names the process
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, before.on_child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)
    if start is not None:
        os.chdir(start.folder)
        os.execve(start.file, list(argv), env)
    os.execvpe(argv[0], list(argv), env)


class _Canary:
    """A process of the same group that reports which signals it gets; it ends with this process."""

    def __init__(self) -> None:
        library = _library()
        self._reports, say = os.pipe()
        self._heard: set[int] = set()
        self._pid = os.fork()
        if not self._pid:
            try:
                _die_with_parent(library)
                _report_signals(say)
            finally:
                os._exit(0)
        os.close(say)

    def has(self, number: int) -> bool:
        """Return whether the signal ``number``, received by this process, went to the whole group."""
        poll = select.poll()  # takes descriptors above 1,023, unlike select.select()
        poll.poll(_GROUP)
        os.kill(self._pid, _QUERY)
        poll.register(self._reports, select.POLLIN)
        while poll.poll(_PATIENCE):
            said = os.read(self._reports, 1)
            if not said or said[0] == _QUERY:
                break
            self._heard.add(said[0])
        found = number in self._heard
        if number not in signal.sigpending():
            self._heard.discard(number)
        return found

    def close(self) -> None:
        """Terminate the canary."""
        os.close(self._reports)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _report_signals(say: int) -> None:
    """Run the canary: write the number of each signal to ``say``.

    The query is the signal with the highest number. Lower signals are delivered first, so every signal that
    came before a query is reported before it.
    """
    for descriptor in map(int, os.listdir("/dev/fd")):
        # An inherited pipe must reach its end without this process.
        if descriptor != say:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    while True:
        os.write(say, bytes([signal.sigwaitinfo(_ALL).si_signo]))


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _die_with_parent(library: ctypes.CDLL) -> None:
    """In a child: have the kernel kill it when its parent ends, even by SIGKILL. This survives an exec."""
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
