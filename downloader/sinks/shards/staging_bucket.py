"""See ``staging``: the same in a bucket, where a process of its own asks for it.

A bucket has no rename: each object is copied on the server to its final name, then deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from downloader.core.bucket_access import BucketAccess
from downloader.core.frames import pack
from downloader.errors import ConfigError, DestinationError
from downloader.process import isolation
from downloader.process.watching import STALL_TIMEOUT, Stalled, run_watched
from downloader.sinks.shards.jobs import bucket_settings
from downloader.sinks.shards.staging import StagedShard

__all__ = ["BucketAnswer", "BucketTask", "StagingBucket"]


class BucketTask(msgspec.Struct, frozen=True):
    """What the process is to do: list, move, remove, check, find, look.

    ``files``: what to move, or to look for, with its MD5. ``existing``: see --existing.
    """

    do: str
    names: list[str] = []
    files: list[tuple[str, str]] = []
    existing: str = "replace"


class BucketAnswer(msgspec.Struct, frozen=True):
    """What became of it: the names found, or why it failed; ``lasting``: see ``BucketError``.

    ``replaced``: how many objects of somebody else were. ``other``: one of another job that was looked for.
    """

    names: list[str] = []
    replaced: int = 0
    failure: str = ""
    lasting: bool = False
    other: str = ""


class StagingBucket:
    """See ``Staging``. ``home`` is a directory of the tool's own. ``existing``: see --existing."""

    def __init__(
        self,
        root: str,
        home: str,
        access: BucketAccess,
        stall_timeout: float = STALL_TIMEOUT,
        existing: str = "replace",
    ) -> None:
        self._root = root
        self._existing = existing
        self._settings = bucket_settings(root, home, access, stall_timeout)

    def names(self) -> list[str]:
        return self._ask(BucketTask("list")).names

    def move(self, name: str, shards: Iterable[StagedShard]) -> int:
        files = [(file.name, file.md5) for shard in shards for file in shard.in_order()]
        return self._ask(BucketTask("move", [name], files, self._existing)).replaced

    def remove(self, names: Iterable[str]) -> None:
        self._ask(BucketTask("remove", list(names)))

    def _ask(self, task: BucketTask) -> BucketAnswer:
        argv, env = isolation.child("downloader.sinks.shards.publisher.process:serve_staging")
        given = pack(msgspec.msgpack.encode(self._settings)) + pack(msgspec.msgpack.encode(task))
        try:
            status, text = run_watched(argv, env, given, self._settings.stall_timeout, patient=True)
        except Stalled as error:
            raise self._failed(f"{error}; run the same command again") from error
        except OSError as error:
            raise self._failed(f"cannot start a process: {error.strerror}") from error
        if status:
            raise self._failed(f"the process for it ended with status {status}")
        answer = msgspec.msgpack.decode(text, type=BucketAnswer)
        if answer.failure and task.do in ("check", "find"):
            kind = ConfigError if answer.lasting else DestinationError
            raise kind(f"-o {self._root}: {answer.failure}")
        if answer.failure and task.do == "look":
            raise DestinationError(f"{self._root} cannot be read: {answer.failure}")
        if answer.failure:
            raise self._failed(answer.failure)
        return answer

    def check(self) -> None:
        """Raise ConfigError if the bucket is not there or refuses us, DestinationError if it is down."""
        self._ask(BucketTask("check"))

    def dataset(self) -> str:
        """Return the name of an object that may be of a dataset of shards, "" if none is found.

        Raises as ``check`` does.
        """
        return next(iter(self._ask(BucketTask("find")).names), "")

    def look(self, files: Sequence[tuple[str, str]]) -> tuple[str, str]:
        """Return the name of an object that is there of the shards that have ``files``, "" if none is.

        And that of one that another job has put there, or "". ``files``: names with MD5s. Where nobody is
        told what is there, it is as if the first of them was.
        """
        answer = self._ask(BucketTask("look", files=list(files)))
        return next(iter(answer.names), ""), answer.other

    def _failed(self, why: str) -> DestinationError:
        return DestinationError(f"cannot give shards in {self._root} their names: {why}")
