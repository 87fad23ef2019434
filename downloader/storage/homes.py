"""Make, find and forget the directory of the tool's own files, and make DEST.

It is ``DEST/.downloader/``, or that of --journal, with ``lock``, ``journal.sqlite``, and a ``ledger-N`` for
each worker.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from downloader.config.options import OutputOptions
from downloader.core.file_errors import advice
from downloader.errors import ConfigError, DestinationError
from downloader.files.directory import HOME, Directory, open_home
from downloader.sinks.registry import forget_staged
from downloader.storage.journal import NAME as JOURNAL
from downloader.storage.journal import Journal

__all__ = ["PLAN", "begun_here", "forget", "has_journal", "home_of", "make_directory", "make_home"]


def home_of(root: str) -> Path:
    """Return the directory of the tool's own files under ``root``, a ``Config.journal_root``."""
    return Path(root) / HOME


def has_journal(config: OutputOptions) -> bool:
    """Return whether there is a journal where that of ``config`` is to be, which may be another job's.

    What cannot be looked at counts as there: whoever opens it says why.
    """
    try:
        os.stat(home_of(config.journal_root) / JOURNAL)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


PLAN = "cluster"
"""The directory of the plan of a job over many machines, below the home."""


def make_directory(option: str, root: Path) -> None:
    """Create the directory ``root``, that ``option`` names, and check that it can be written."""
    with _made(option, root, root):
        root.mkdir(parents=True, exist_ok=True)
        _check_writable(root)


def make_home(option: str, root: str) -> Directory:
    """Create the home of the tool's own files in ``root``, that ``option`` names; return it, opened.

    Raises ConfigError if it cannot be written or is not to be trusted, DestinationError.
    """
    path = home_of(root)
    with _made(option, Path(root), path):
        home = open_home(path, create=True)
        try:
            _check_writable(path)
        except BaseException:
            home.close()
            raise
        return home


def _check_writable(directory: Path) -> None:
    with tempfile.TemporaryFile(dir=directory) as probe:
        probe.write(b"downloader\n")
        probe.flush()


@contextlib.contextmanager
def _made(option: str, root: Path, directory: Path) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        culprit = next((p for p in (directory, *directory.parents) if p.is_file()), directory)
        raise ConfigError(f"{option} {root}: {culprit} is a file, not a directory") from None
    except PermissionError as error:
        raise ConfigError(
            f"{option} {root}: {error.strerror}; choose a directory you may write to"
        ) from None
    except OSError as error:
        if error.errno == errno.EROFS:
            raise ConfigError(f"{option} {root}: {error.strerror}; choose another directory") from None
        raise DestinationError(f"{option} {root}: {advice(error)}") from error


def begun_here(home: Directory) -> bool:
    """Return whether ``home`` has the journal of a job that has listed something. Raises JournalError."""
    if not (home / JOURNAL).exists():
        return False
    with contextlib.closing(Journal(home)) as journal:
        return journal.position().listed > 0


def forget(home: Directory) -> None:
    """Remove the state of an earlier job, synced so that a power cut does not bring it back.

    Also that of a job over many machines: `status` and `verify` would look at that.
    """
    forget_staged(home)
    (home / PLAN).remove_tree()
    for entry in home.entries("(journal.sqlite|ledger-|known.sqlite|names.sqlite|records-).*"):
        entry.remove_tree()  # whatever it is
    home.sync()
