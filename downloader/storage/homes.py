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
from downloader.core.naming import shown
from downloader.errors import ConfigError, DestinationError
from downloader.files.directory import HOME, Directory, open_home
from downloader.sinks.registry import forget_staged
from downloader.storage.journal import NAME as JOURNAL
from downloader.storage.journal import Journal

__all__ = [
    "PLAN",
    "begun_here",
    "forget",
    "has_journal",
    "home_of",
    "make_directory",
    "make_home",
    "removed_if_refused",
]


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


def make_directory(option: str, root: Path) -> bool:
    """Create the directory ``root``, that ``option`` names, and check that it can be written.

    Return whether it was not there before.
    """
    is_new = not os.path.lexists(root)
    with _made(option, root, root):
        root.mkdir(parents=True, exist_ok=True)
        _check_writable(root)
    return is_new


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
def removed_if_refused(home: Path) -> Iterator[None]:
    """Remove what the block makes of ``home`` and its path, but for files, if it raises ConfigError."""
    missing = _missing(home)
    try:
        yield
    except ConfigError:
        with contextlib.suppress(OSError):
            if home in missing and os.listdir(home) == ["lock"]:
                (home / "lock").unlink()
        _remove(missing)
        raise


@contextlib.contextmanager
def _made(option: str, root: Path, directory: Path) -> Iterator[None]:
    """Raise what says why ``directory`` of ``root``, which ``option`` names, cannot be made or written.

    What was made of its path is then removed again.
    """
    missing = _missing(directory)
    try:
        yield
    except BaseException as error:
        _remove(missing)
        if isinstance(error, OSError):
            raise _unfit(option, root, directory, error, new=bool(missing)) from error
        raise


def _missing(directory: Path) -> list[Path]:
    """Return what is to be made of the path of ``directory``, the innermost first."""
    return [path for path in (directory, *directory.parents) if not os.path.lexists(path)]


def _remove(directories: list[Path]) -> None:
    for path in directories:
        with contextlib.suppress(OSError):  # it has something by now
            path.rmdir()


def _unfit(
    option: str, root: Path, directory: Path, error: OSError, *, new: bool
) -> ConfigError | DestinationError:
    """Return the error to raise for ``error``; ``new``: something of the path had to be made."""
    named = f"{option} {root}"
    at = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
    if at.is_symlink() and not at.exists():
        loop = _errno_of(at) == errno.ELOOP
        why = "itself" if loop else f"{os.readlink(at)}, which is not there"
        return ConfigError(
            f"{named}: {at} is a symbolic link to {why}; mend it, or choose another directory"
        )
    if not at.is_dir():
        return ConfigError(f"{named}: {at} is a file, not a directory; choose another one")
    if error.errno == errno.ENAMETOOLONG:
        return ConfigError(
            f"{option} {shown(str(root))}: longer than the file system takes; choose a shorter path"
        )
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        part = next((each for each in reversed((directory, *directory.parents)) if each.is_file()), root)
        return ConfigError(f"{named}: {part} is a file, not a directory; choose another one")
    if error.errno == errno.ENOENT and (new or directory.is_dir()):
        return ConfigError(f"{named}: nothing can be made in {at}; choose another directory")
    if isinstance(error, PermissionError):
        if at == directory != root:
            return ConfigError(
                f"{named}: {at}: {error.strerror}; it may be another user's: give another directory with "
                "--journal, or choose a directory you may write to"
            )
        return ConfigError(f"{named}: {error.strerror}; choose a directory you may write to")
    if error.errno == errno.EROFS:
        return ConfigError(f"{named}: {error.strerror}; choose another directory")
    return DestinationError(f"{named}: {advice(error)}")


def _errno_of(path: Path) -> int:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno or 0
    return 0


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
