"""Keep the files of a plan in a bucket of S3 or of a store like it, with obstore.

That takes conditional requests: ``If-None-Match: *`` creates a record that no other attempt has created,
``If-Match`` changes the record of the plan's owner. A store that ignores them is refused, see ``check``.

obstore starts threads: a process that is to fork, or that gevent has patched, must not open these files.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from downloader.cluster.plan.plan_files import Writer
from downloader.core.bucket_access import BucketAccess
from downloader.errors import ConfigError, DestinationError
from downloader.files.directory import UnsafeFile, open_home
from downloader.sinks.bucket_patience import RUN, START, Patience, say_on_stderr
from downloader.sinks.bucket_store import NODE, BucketError, open_bucket

__all__ = ["BucketFiles"]

_CHUNK: Final = 8 << 20
_SMALL: Final = 1 << 20  # sent in no time
_AT_ONCE: Final = 32  # small files that are read at a time
_T = TypeVar("_T")


class BucketFiles:
    """See ``PlanFiles``. Who may read the bucket may read them.

    ``waits``: for how many seconds each outage is waited for, after the bucket has answered once.
    """

    contended = True

    def __init__(self, root: str, access: BucketAccess, *, waits: float = RUN) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        self.root = root
        self._obstore = obstore
        self._taken = (AlreadyExistsError, PreconditionError)
        # Nobody sits before a node, and the driver has asked the bucket.
        self._patience = Patience(None if NODE in os.environ else START, waits, say_on_stderr)
        try:
            self._store: Any = open_bucket(root, access)
            self._sending: Any = open_bucket(root, access, sent=_CHUNK)
        except BucketError as error:
            raise DestinationError(f"{root}: {error}") from error

    def _ask(self, ask: Callable[[], _T]) -> _T:
        try:
            return self._patience(ask)
        except (BucketError, OSError) as error:
            raise DestinationError(f"{self.root}: {error}") from error

    def _store_for(self, content: bytes) -> Any:
        return self._store if len(content) <= _SMALL else self._sending

    def read(self, name: str) -> bytes | None:
        found = self.read_version(name)
        return None if found is None else found[0]

    def read_version(self, name: str) -> tuple[bytes, str] | None:
        """Return content and ETag of a file, None if it is not there."""

        def ask() -> tuple[bytes, str] | None:
            try:
                found = self._obstore.get(self._store, name)
                return bytes(found.bytes()), found.meta["e_tag"] or ""
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

        return self._ask(ask)

    def age(self, name: str) -> float:
        """Return for how many seconds a file is as it is, by this machine's clock; 0 if it is not there."""

        def ask() -> float:
            try:
                changed = self._obstore.head(self._store, name)["last_modified"]
            except FileNotFoundError:
                return 0.0
            return float((datetime.now(timezone.utc) - changed).total_seconds())

        return self._ask(ask)

    def read_all(self, directory: str, suffix: str) -> Iterator[tuple[str, bytes]]:
        names = iter([name for name in self.names(f"{directory}/") if name.endswith(suffix)])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while some := list(islice(names, 8 * _AT_ONCE)):
                for name, content in zip(some, pool.map(self.read, some), strict=True):
                    if content is not None:
                        yield name, content

    def write(self, name: str, content: bytes) -> None:
        self._ask(lambda: self._obstore.put(self._store_for(content), name, content))

    def create(self, name: str, content: bytes) -> bool:
        return self.put_if(name, content, "") is not None or self.read(name) == content

    def put_if(self, name: str, content: bytes, version: str) -> str | None:
        """Write a file that has the ETag ``version``, "" for one that is not there; return its new ETag.

        Return None if it has another, or perhaps if an answer was lost and the request sent again.
        """
        mode: Any = {"e_tag": version} if version else "create"

        def ask() -> str | None:
            try:
                found = self._obstore.put(self._store_for(content), name, content, mode=mode)
            except self._taken:
                return None
            return found["e_tag"] or ""

        return self._ask(ask)

    def check(self, name: str, content: bytes) -> None:
        """Raise ConfigError if the store ignores conditions; ``name`` is there with ``content``."""
        other = content + b" "
        if self.put_if(name, other, "") is None and self.put_if(name, other, '"0"') is None:
            return
        raise ConfigError(
            f"{self.root}: this store ignores conditions of requests (If-None-Match, If-Match), so two "
            "attempts at a slice could both count; give --journal a directory that all nodes share"
        )

    def writer(self, name: str) -> Writer:
        return _BucketWriter(self, name)

    def put(self, name: str, file: BinaryIO) -> None:
        """Write a large file from its start, also if it is there."""

        def ask() -> None:
            file.seek(0)
            self._obstore.put(self._sending, name, file, chunk_size=_CHUNK, max_concurrency=2)

        self._ask(ask)

    def open(self, name: str) -> BinaryIO:
        file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._copy(name, file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def local(self, name: str, directory: Path) -> str:
        with open_home(directory, option="--scratch") as home:
            path = home / name.rpartition("/")[2]
            # With its name, it is whole: an attempt that was lost may have left it.
            if not path.check(write=False):
                temporary = home / f".{path.leaf}"
                try:
                    with temporary.writer() as file:
                        self._copy(name, file)
                    temporary.rename(path.leaf)
                except UnsafeFile:
                    raise
                except OSError as error:
                    raise DestinationError(f"{temporary}: {error.strerror}") from error
            return os.fspath(path)

    def _copy(self, name: str, file: BinaryIO) -> None:
        def ask() -> None:
            file.seek(0)
            file.truncate()
            for chunk in self._obstore.get(self._store, name):
                file.write(chunk)

        self._ask(ask)

    def names(self, prefix: str) -> list[str]:
        directory, _, leaf = prefix.rpartition("/")

        def ask() -> list[str]:
            found: list[str] = []
            # In order, and from the prefix on: it takes a page, not the directory.
            offset = prefix if leaf else None
            for page in self._obstore.list(self._store, directory or None, offset=offset):
                found += [entry["path"] for entry in page if entry["path"].startswith(prefix)]
                if leaf and page and not page[-1]["path"].startswith(prefix):
                    break
            return sorted(found)

        return self._ask(ask)

    def remove(self, name: str) -> None:
        def ask() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._obstore.delete(self._store, name)

        self._ask(ask)

    def clear(self) -> None:
        def ask() -> None:
            for page in self._obstore.list(self._store):
                self._obstore.delete(self._store, [entry["path"] for entry in page])

        self._ask(ask)


class _BucketWriter:
    def __init__(self, files: BucketFiles, name: str) -> None:
        self._files = files
        self._name = name
        self.file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115

    def publish(self) -> None:
        with self.file:
            self._files.put(self._name, self.file)

    def abort(self) -> None:
        self.file.close()
