"""Find out what the file system of a destination does with names, by making directories that are removed.

FAT, exFAT, NTFS and most network shares refuse a colon, which a host with a port has in --layout mirror;
some keep one name for two that differ in case, or at the end.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from downloader.config.config import Config
from downloader.core.naming import COLON, ESCAPED_COLON
from downloader.errors import DestinationError

__all__ = ["colon_of", "folds_names", "remove_probe"]

_PROBE = ".downloader-names"
_PROBED = ("name", "NAME", "host", f"host{COLON}80")


def colon_of(config: Config) -> str:
    """Return how a job that begins with ``config`` writes a colon; see ``core.naming.url_path``.

    Raises DestinationError.
    """
    if config.layout != "mirror" or not config.sink_kind.keeps:
        return COLON
    with _probe(config.output) as directory:
        return COLON if _takes(directory, f"host{COLON}80") else ESCAPED_COLON


def folds_names(output: str) -> bool:
    """Return whether two names that differ in case only are one on the disk. Raises DestinationError."""
    with _probe(output) as directory:
        os.mkdir(os.path.join(directory, "name"))
        return os.path.exists(os.path.join(directory, "NAME"))


def _takes(directory: str, name: str) -> bool:
    """Return whether a directory of that name can be made, and has it then."""
    try:
        os.mkdir(os.path.join(directory, name))
    except OSError:
        os.mkdir(os.path.join(directory, "host"))  # else it is not the name
        return False
    return name in os.listdir(directory)


@contextlib.contextmanager
def _probe(output: str) -> Iterator[str]:
    """Make a directory below ``output`` for the time of the block; OSError becomes DestinationError.

    It has a name of its own, so that the next run can remove what a killed one has left
    (``remove_probe``); if something else has that, another one.
    """
    try:
        directory = os.path.join(output, _PROBE)
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            with tempfile.TemporaryDirectory(prefix=f"{_PROBE}-", dir=output) as other:
                yield other
            return
        try:
            yield directory
        finally:
            at = os.open(output, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                remove_probe(at)
            finally:
                os.close(at)
    except OSError as error:
        raise DestinationError(f"-o {output}: {error.strerror}") from error


def remove_probe(output: int) -> None:
    """Remove the directory that a killed run has left below the directory ``output``, a descriptor.

    Only empty directories are removed, and only those with the names that are probed: nothing of a user.
    """
    with contextlib.suppress(OSError):
        fd = os.open(_PROBE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=output)
        try:
            for name in _PROBED:
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(_PROBE, dir_fd=output)
