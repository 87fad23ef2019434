"""Runs a command as if nobody stood between it and its caller.

It has our streams, descriptors, process group and terminal, so what is sent to all of the group (Ctrl-C,
SIGWINCH, ``kill -TERM -PGID``) it gets by itself, and only what was sent to us alone is passed on. Which
of the two a signal was, the receiver cannot see: so a canary, a process in our group, is asked whether it
has got the same. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
from collections.abc import Iterator, Mapping, Sequence

from diagnostics.errors import UsageError

__all__ = ["Command", "end_like", "started"]

_ALL = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_GROUP = 0.005  # seconds in which a signal has reached every process of a group
_ASK = signal.SIGRTMAX
_PATIENCE = 5.0  # seconds that the canary may take, on a slow machine
_PR_SET_PDEATHSIG = 1


class Command:
    """A command that runs. ``wait()`` is to be called in the thread that started it."""

    def __init__(self, pid: int, canary: _Canary) -> None:
        self.pid = pid
        self._canary = canary

    def wait(self) -> int:
        """Pass signals on until it ends; its wait status."""
        while True:
            number = signal.sigwaitinfo(_ALL).si_signo
            if number != signal.SIGCHLD:
                if not self._canary.has(number):
                    os.kill(self.pid, number)
                continue
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and not os.WIFSTOPPED(status):
                return status
            if pid:
                # The shell has to see it of us. SIGCONT is passed on like any other.
                number = os.WSTOPSIG(status)
                os.kill(os.getpid(), number)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
                signal.pthread_sigmask(signal.SIG_BLOCK, {number})
                self._canary.has(number)  # and it is to forget that


@contextlib.contextmanager
def started(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Command]:
    """Start ``argv``. In the meantime every signal is blocked, in threads that begin here too.

    Raises UsageError when it cannot be executed.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        with contextlib.closing(_Canary()) as canary:
            yield Command(_spawn(argv, dict(env), before), canary)
    finally:
        while signal.sigtimedwait(_ALL, 0) is not None:
            pass  # meant for the command, which has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_like(status: int) -> int:
    """The exit code; of a command that died by a signal there is none: we die by the same."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number in _ALL:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number  # process 1 of a container does not die by a signal


def _spawn(argv: Sequence[str], env: dict[str, str], mask: set[int | signal.Signals]) -> int:
    library = _library()  # loaded here: little is safe in a child
    failed, tell = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            _become(argv, env, mask, library)
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


def _become(
    argv: Sequence[str], env: dict[str, str], mask: set[int | signal.Signals], library: ctypes.CDLL
) -> None:
    """In the child: leave no trace of Python's own settings, then become ``argv``."""
    _end_with_parent(library)
    if env.get("LISTEN_PID") == str(os.getppid()):
        env["LISTEN_PID"] = str(os.getpid())  # systemd's sockets are for this process
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.execvpe(argv[0], list(argv), env)


class _Canary:
    """A process of our group that says which signals it gets. It goes with us, however we end."""

    def __init__(self) -> None:
        library = _library()
        self._said, say = os.pipe()
        self._heard: set[int] = set()
        self._pid = os.fork()
        if not self._pid:
            try:
                _end_with_parent(library)
                _sing(say)
            finally:
                os._exit(0)
        os.close(say)

    def has(self, number: int) -> bool:
        """Whether the signal ``number`` that we have got went to the whole group."""
        select.select([], [], [], _GROUP)
        os.kill(self._pid, _ASK)
        while select.select([self._said], [], [], _PATIENCE)[0]:
            said = os.read(self._said, 1)
            if not said or said[0] == _ASK:
                break
            self._heard.add(said[0])
        found = number in self._heard
        if number not in signal.sigpending():
            self._heard.discard(number)
        return found

    def close(self) -> None:
        """End it."""
        os.close(self._said)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _sing(say: int) -> None:
    """The canary's life. When it is asked, all that came before has been said: the question is the signal
    with the highest number, and the lower ones are taken first."""
    for descriptor in map(int, os.listdir("/dev/fd")):
        # Who waits for the end of a pipe must not wait for us.
        if descriptor != say:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    while True:
        os.write(say, bytes([signal.sigwaitinfo(_ALL).si_signo]))


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _end_with_parent(library: ctypes.CDLL) -> None:
    """In a child: who ends our parent with SIGKILL ends us. Across exec, too."""
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
