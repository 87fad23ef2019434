"""Find the files of a bag (RFC 8493) that stand beside its ``fetch.txt``.

The supervisor needs their names, so nothing is imported here that a process must not have that forks.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Final, NamedTuple

from downloader.core.content_check import ALGORITHMS
from downloader.core.naming import shown
from downloader.errors import ConfigError

__all__ = ["STRENGTH", "Manifest", "files_beside", "find_manifests", "open_beside"]

STRENGTH: Final = ("sha512", "sha384", "sha256", "sha224", "sha1", "md5")
"""The algorithms of manifests that can be computed, the strongest first."""
# In any case: the checksums of one that is passed over are verified by nobody.
_NAME = re.compile(r"manifest-([a-z0-9_-]+)\.txt", re.IGNORECASE | re.ASCII)


class Manifest(NamedTuple):
    """A payload manifest: its path, and its algorithm, "" for one that cannot be computed."""

    file: str
    algorithm: str


def files_beside(fetch: str) -> list[str]:
    """Return what is read of a bag beside its ``fetch.txt``: bagit.txt, and the payload manifests."""
    directory = os.path.dirname(fetch)
    return [os.path.join(directory, "bagit.txt"), *(each.file for each in find_manifests(directory))]


def find_manifests(directory: str) -> list[Manifest]:
    """Return the payload manifests in ``directory``, the strongest that can be computed first."""
    try:
        names = os.listdir(directory or ".")
    except OSError:
        names = []
    found = []
    for name in sorted(names):
        if match := _NAME.fullmatch(name):
            algorithm = re.sub("[-_]", "", match[1].lower())
            known = algorithm if algorithm in STRENGTH and algorithm in ALGORITHMS else ""
            found.append(Manifest(os.path.join(directory, name), known))
    strength = [*STRENGTH, ""]
    return sorted(found, key=lambda each: strength.index(each.algorithm))


def open_beside(path: str) -> int:
    """Return a descriptor of ``path``, a file of a bag, to read it.

    Raises OSError, and ConfigError if it is no regular file: a pipe would be waited for, and a device read
    without an end.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ConfigError(f"{shown(path)} is not a regular file, as a file of a bag is; replace it")
    return fd
