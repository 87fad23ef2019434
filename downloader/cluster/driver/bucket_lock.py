"""Keep two drivers off one plan in a bucket, with a record of its owner that is changed conditionally.

The owner writes its record again every ``BEAT`` seconds, with ``If-Match``. Another driver watches it by
its own clock: a record that stays as it is for ``STALE`` seconds is that of a driver which is gone, and is
taken over; so is that of a process of this machine which does not run any more. An owner who could not
write its record for ``LOST`` seconds, which is sooner, does nothing until it is written again, as after an
outage of the bucket. An owner whose record was taken over ends.

A driver that stands still for longer can go on for a moment after it was taken over. Nothing is damaged by
that: slices, and their records when they are done, are created only where there are none.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final

import msgspec

from downloader.cluster.plan.bucket_files import BucketFiles
from downloader.errors import UNDECODABLE, DownloaderError, InUse
from downloader.sinks.bucket_patience import RUN, pause
from downloader.storage.lock import is_alive

__all__ = ["BEAT", "LOST", "STALE", "BucketLock", "Owner", "has_owner"]

BEAT: Final = 10.0
LOST: Final = 45.0
STALE: Final = 60.0
_LOCK = "lock"
_LOOK_EVERY = 1.0


class Owner(msgspec.Struct, frozen=True):
    """The record of an owner. ``machine``: where ``pid`` means something; ``free``: it has ended."""

    token: str
    host: str
    machine: str
    pid: int
    beat: int = 0
    free: bool = False


class BucketLock:
    """The plan is owned in a ``with`` block. Raises InUse, ConfigError, DestinationError."""

    def __init__(self, files: BucketFiles, log: Callable[[str], None]) -> None:
        self._files = files
        self._log = log
        self._me = Owner(os.urandom(8).hex(), socket.gethostname(), _machine(), os.getpid())
        self._version = ""
        self._beaten = 0.0
        self._lost = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="plan lock", daemon=True)

    def __enter__(self) -> BucketLock:
        while not self._take():
            pass
        self._files.check(_LOCK, msgspec.json.encode(self._me))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        if not self._lost:
            with contextlib.suppress(DownloaderError):
                self._write(msgspec.structs.replace(self._me, free=True))

    def check(self) -> None:
        """Return when this process is known to own the plan. Raises InUse if it may not own it any more."""
        if not self._lost and monotonic() - self._beaten > LOST:
            self._log("the bucket of the plan does not answer; waiting")
            until = self._beaten + RUN
            while not self._lost and monotonic() - self._beaten > LOST:
                if monotonic() > until or not pause(_LOOK_EVERY):
                    self._lost = "its record could not be written in time"
        if self._lost:
            raise InUse(f"{self._files.root} is not owned by this driver any more: {self._lost}")

    def _take(self) -> bool:
        """Try to become the owner; return False if another was faster."""
        found = self._files.read_version(_LOCK)
        if found is None:
            self._version = ""
            return self._write(self._me)
        owner, self._version = _decoded(found[0]), found[1]
        if owner is not None and not owner.free and not _has_ended(owner):
            self._watch(owner)
        return self._write(self._me)

    def _watch(self, owner: Owner) -> None:
        """Return when ``owner`` has not written for long enough. Raises InUse when it writes."""
        who = f"{self._files.root} is in use by another run (process {owner.pid} on {owner.host})"
        self._log(f"{who}; its sign of life is awaited for up to {STALE:.0f} s")
        until = monotonic() + STALE
        while monotonic() < until:
            sleep(_LOOK_EVERY)
            found = self._files.read_version(_LOCK)
            if found is None or found[1] != self._version:
                now = None if found is None else _decoded(found[0])
                if now is None or now.free:
                    self._version = "" if found is None else found[1]
                    return
                raise InUse(f"{who}; wait for it, or stop it")

    def _write(self, owner: Owner) -> bool:
        """Write the record where it is the version that was seen last; return whether that is so."""
        content = msgspec.json.encode(owner)
        version = self._files.put_if(_LOCK, content, self._version)
        if version is None:
            # An answer may have been lost: then it is there.
            found = self._files.read_version(_LOCK)
            if found is None or found[0] != content:
                return False
            version = found[1]
        self._version, self._beaten, self._me = version, monotonic(), owner
        return True

    def _beat(self) -> None:
        while not self._ending.wait(BEAT):
            with contextlib.suppress(DownloaderError):  # `check` counts the seconds
                if not self._write(msgspec.structs.replace(self._me, beat=self._me.beat + 1)):
                    self._lost = "another has taken it over"
                    return


def has_owner(files: BucketFiles) -> bool:
    """Return whether a driver owns the plan: one that has ended says so, or has not written for long.

    A clock of this machine that is wrong by more than half a minute may mislead it.
    """
    found = files.read_version(_LOCK)
    owner = _decoded(found[0]) if found is not None else None
    if owner is None or owner.free or _has_ended(owner):
        return False
    return files.age(_LOCK) < STALE


def _decoded(content: bytes) -> Owner | None:
    try:
        return msgspec.json.decode(content, type=Owner)
    except UNDECODABLE:
        return None  # nobody's


def _machine() -> str:
    """Return what processes share for whom a process ID means the same process, "" if it is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _has_ended(owner: Owner) -> bool:
    """Return whether the process of ``owner`` is known to have ended."""
    if not owner.machine or owner.machine != _machine() or owner.pid == os.getpid():
        return False
    return not is_alive(str(owner.pid))
