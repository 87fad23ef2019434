"""Open a plan for one driver at a time, and find the key of names that belongs to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from downloader.cluster.plan.plan import PlanDirectory
from downloader.config.config import Config
from downloader.core.bucket_access import BucketAccess
from downloader.core.bucket_place import is_bucket
from downloader.errors import ConfigError
from downloader.files.directory import HOME, open_home
from downloader.storage.homes import PLAN, begun_here, forget, home_of, make_home
from downloader.storage.journal import NAME as JOURNAL
from downloader.storage.lock import is_locked, lock
from downloader.storage.name_key import KEY_BYTES, KEY_NAME, name_key, wrong_key

__all__ = ["PlanHome", "forget_all", "has_driver", "may_have_plan", "plan_home", "plan_home_at"]


class PlanHome(NamedTuple):
    """A plan that this driver owns. ``check`` raises InUse when it does not any more."""

    directory: PlanDirectory
    name_key: bytes
    check: Callable[[], None]


def may_have_plan(journal_root: str) -> bool:
    """Return False if there is no plan, or none for this user; the journal there is read instead."""
    return is_bucket(journal_root) or os.access(PlanDirectory(journal_root).root, os.R_OK | os.X_OK)


def has_driver(root: str, access: BucketAccess) -> bool:
    """Return whether a driver owns the plan under ``root``; True where that cannot be told."""
    if not is_bucket(root):
        try:
            with open_home(home_of(root), write=False) as home:
                return is_locked(home)
        except FileNotFoundError:
            return False
        except OSError:
            return True
    from downloader.cluster.driver.bucket_lock import has_owner
    from downloader.cluster.plan.bucket_files import BucketFiles

    return has_owner(BucketFiles(f"{root.rstrip('/')}/{HOME}", access, waits=0))


@contextlib.contextmanager
def plan_home(config: Config, log: Callable[[str], None]) -> Iterator[PlanHome]:
    """Own the plan of ``config`` in the block, and return it; ``log`` gets lines about what takes long.

    Raises InUse if another driver owns it, ConfigError, DestinationError, JournalError.
    """
    root = config.journal_root
    if not is_bucket(root):
        make_home("--journal" if config.journal else "-o", root).close()
        if not config.restart:
            _check_engine(root)
    with plan_home_at(root, config.journal_access, log) as home:
        yield home


def _check_engine(root: str) -> None:
    """Raise ConfigError if a local job has its journal where the plan is to be, and there is no plan."""
    with open_home(home_of(root)) as home:
        if (home / PLAN / "plan.json").exists() or not (home / JOURNAL).exists():
            return
        fd = lock(home)
        try:
            begun = begun_here(home)
        finally:
            os.close(fd)
    if begun:
        raise ConfigError(
            f"{root} has the journal of a job of one machine: go on without --engine ray, or give another "
            "-o, or --restart to forget that job (its files stay)"
        )


def forget_all(root: str) -> None:
    """Forget the plan and the journal under ``root``, which this driver owns; not what is in a bucket."""
    if not is_bucket(root):
        with open_home(home_of(root)) as home:
            forget(home)


@contextlib.contextmanager
def plan_home_at(root: str, access: BucketAccess, log: Callable[[str], None]) -> Iterator[PlanHome]:
    """Own the plan under ``root`` in the block, and return it; see ``plan_home``."""
    if is_bucket(root):
        with _in_bucket(root, access, log) as home:
            yield home
        return
    with open_home(home_of(root)) as home:
        fd = lock(home)
        try:
            yield PlanHome(PlanDirectory(root), name_key(home), lambda: None)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _in_bucket(root: str, access: BucketAccess, log: Callable[[str], None]) -> Iterator[PlanHome]:
    from downloader.cluster.driver.bucket_lock import BucketLock
    from downloader.cluster.plan.bucket_files import BucketFiles

    # The lock looks after outages itself.
    files = BucketFiles(f"{root.rstrip('/')}/{HOME}", access, waits=0)
    with BucketLock(files, log) as owner:
        if (key := files.read(KEY_NAME)) is None:
            key = os.urandom(KEY_BYTES)
            if not files.create(KEY_NAME, key):
                key = files.read(KEY_NAME) or b""
        if len(key) != KEY_BYTES:
            raise wrong_key(f"{files.root}/{KEY_NAME}")
        yield PlanHome(PlanDirectory(root, access), key, owner.check)
