"""Start a publisher from a worker, and have it publish parts while the worker goes on.

The sockets and the process are those of the standard library: where gevent has patched it, as in a worker,
waiting is cooperative.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec

from downloader.config.machine import why_killed
from downloader.core.bucket_place import is_bucket
from downloader.core.frames import Unpacker, pack
from downloader.errors import DestinationError
from downloader.process import isolation, watching
from downloader.sinks.shards.jobs import NotPublished, PublishedShard, PublisherSettings, ShardJob, Waiting

__all__ = ["Publisher"]

_ENTRY = "downloader.sinks.shards.publisher.process:serve"
_CHUNK = 64 << 10
_ENDS_WITHIN = 5.0
_LESS = "give more memory, or store with a smaller --shard-size or --shard-files and another -o"
_encode = msgspec.msgpack.Encoder().encode
_answers: Final[Any] = msgspec.msgpack.Decoder(PublishedShard | NotPublished | Waiting)


class Publisher:
    """A publisher's process, which is started at the first job.

    ``say``: gets what the user is to know while a job lasts, a line at a time.
    """

    def __init__(self, settings: PublisherSettings) -> None:
        self.say: Callable[[str], None] = _say_nothing
        self._settings = settings
        self._process: _Process | None = None
        self._turn = threading.Lock()
        self._closed = False

    def publish(self, job: ShardJob) -> PublishedShard:
        """Publish ``job``, and wait until it is done; one job at a time.

        Raises DestinationError. If the process dies, another one is given the job once more.
        """
        with self._turn:
            for again in (True, False):
                if self._closed:
                    break
                try:
                    if self._process is None:
                        self._process = _Process(self._settings)
                    answer = self._process.ask(job, self.say)
                except OSError as error:
                    raise DestinationError(
                        f"the publisher of shards cannot be started: {error.strerror or error}; "
                        "run the same command again"
                    ) from error
                except _Died as death:
                    self._process = None
                    if not again:
                        raise DestinationError(
                            f"cannot publish shard {job.number:05d}: its process ended twice, {death}"
                        ) from death
                    continue
                except BaseException:
                    # The greenlet is killed; its answer would be taken for that to the next job.
                    if self._process is not None:
                        self._process.end(kill=True)
                        self._process = None
                    raise
                if isinstance(answer, NotPublished):
                    raise DestinationError(answer.text)
                return answer
            raise DestinationError(f"shard {job.number:05d} is not published: the run ends")

    def close(self) -> None:
        """End the process; a job that it has is not finished, and can be given to another one."""
        self._closed = True
        process, self._process = self._process, None
        if process is not None:
            process.end(kill=self._turn.locked())


def _say_nothing(text: str) -> None:
    """Do nothing."""


class _Died(Exception):
    """The process ended before it answered; the message says how."""


class _Process:
    """A running publisher. Raises OSError if it cannot be started."""

    def __init__(self, settings: PublisherSettings) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(watching.LOOK_EVERY)
        self._socket = ours
        self._limit, self._patient = settings.stall_timeout, is_bucket(settings.root)
        self._unpacker = Unpacker()
        argv, env = isolation.child(_ENTRY, str(os.getpid()), dest=settings.root)
        try:
            self._process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=theirs.fileno(), env=env, pass_fds=_locks(settings.home)
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._first = pack(_encode(settings))

    def ask(self, job: ShardJob, say: Callable[[str], None]) -> PublishedShard | NotPublished:
        """Return the answer to ``job``; ``say`` gets what it says before. Raises _Died."""
        watch = watching.Watch(self._process.pid, self._limit, patient=self._patient)
        left = memoryview(self._first + pack(_encode(job)))
        self._first = b""
        while True:
            try:
                if left:
                    left = left[self._socket.send(left) :]
                    continue
                data = self._socket.recv(_CHUNK)
            except TimeoutError:
                if watch.stalled():
                    self.end(kill=True)
                    stalled = watching.stalled_text(self._limit)
                    raise _Died(f"it {stalled}; is its disk at work? run the same command again") from None
                continue
            except OSError:
                break  # it has ended, or `close` was called
            if not data:
                break
            for frame in self._unpacker.feed(data):
                answer: PublishedShard | NotPublished | Waiting = _answers.decode(frame)
                if not isinstance(answer, Waiting):
                    return answer
                watch.heard()
                if answer.text:
                    say(answer.text)
        raise _Died(self.end(kill=True))

    def end(self, *, kill: bool) -> str:
        """End the process, at once or when it has finished its job, and return how it ended."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if not kill:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return _shown(self._process.wait(_ENDS_WITHIN))
        elif self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # Its end of the socket is closed before its status is known.
                return _shown(self._process.wait(0.2))
        return _shown(watching.end(self._process))


def _shown(status: int) -> str:
    """Describe a returncode, and say what to do."""
    if why := why_killed(-status, _LESS):
        return f"killed by signal {-status}{why}; then run the same command again"
    how = f"killed by signal {-status}" if status < 0 else f"with status {status}"
    return f"{how}; standard error may say why; run the same command again"


def _locks(home: str) -> tuple[int, ...]:
    """Return our descriptor of the lock of the destination.

    The publisher has to keep it: another run must not begin before this one's last process has ended.
    """
    try:
        wanted = os.stat(os.path.join(home, "lock"))
        found = os.listdir("/dev/fd")
    except OSError:
        return ()
    for name in found:
        with contextlib.suppress(OSError, ValueError):
            if os.path.samestat(os.fstat(int(name)), wanted):
                return (int(name),)
    return ()
