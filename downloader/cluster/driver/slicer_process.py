"""Start the process that cuts the source into slices, and read its events."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import Any

import msgspec

from downloader.cluster.driver.slicer import SlicerJob
from downloader.cluster.plan.plan import Slice
from downloader.config.config import Config
from downloader.core.bucket_place import is_bucket
from downloader.errors import BootError
from downloader.process.isolation import child
from downloader.process.watching import Watch, end, start

__all__ = ["SlicerProcess"]

_MOST_STARTS = 3


class SlicerProcess:
    """A running slicer; see ``slicer``. ``starts``: which one in a row it is."""

    def __init__(self, config: Config, name_key: bytes, number: int, last: Slice, starts: int = 1) -> None:
        self._config = config
        self._name_key = name_key
        self._starts = starts
        self._rest = b""
        reader, writer = os.pipe()
        argv, env = child(
            "downloader.cluster.driver.slicer:main", str(reader), str(os.getpid()), dest=config.local_output
        )
        try:
            self._process = start(
                argv,
                stdin=None if config.reads_stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=env,
                pass_fds=(reader,),
                start_new_session=True,
            )
        except BootError:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        with contextlib.suppress(BrokenPipeError), open(writer, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(SlicerJob(config.encode(), name_key, number, last)))
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        # It watches the feeder itself, with half of the time.
        self._watch = Watch(
            self._process.pid, 2 * config.stall_timeout, patient=is_bucket(config.journal_root), speaks=True
        )

    @property
    def stalled(self) -> bool:
        """Return whether it makes no progress, and is to be killed; ask once a second or more often."""
        return self._watch.stalled()

    @property
    def limit(self) -> float:
        """Return how many seconds it may be without progress."""
        return self._watch.limit

    def events(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the events that have arrived, and whether more may come."""
        found: list[dict[str, Any]] = []
        while True:
            try:
                data = os.read(self._out, 1 << 16)
            except BlockingIOError:
                return found, True
            self._watch.heard()
            *lines, self._rest = (self._rest + data).split(b"\n")
            found += [json.loads(line) for line in lines]
            if not data:
                return found, False

    def may_start_again(self) -> bool:
        """Return whether another may take over, should this one have died."""
        return self._starts < _MOST_STARTS and not self._config.reads_stdin

    def again(self, number: int, last: Slice) -> SlicerProcess:
        """Start another, which goes on behind ``last``, of ``number`` slices."""
        return SlicerProcess(self._config, self._name_key, number, last, self._starts + 1)

    def kill(self) -> None:
        """Kill the process, if it has not ended."""
        end(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
