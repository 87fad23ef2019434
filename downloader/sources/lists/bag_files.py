"""Find the files of a bag (RFC 8493) that stand beside its ``fetch.txt``.

The supervisor needs their names, so nothing is imported here that a process must not have that forks.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from downloader.core.content_check import ALGORITHMS

__all__ = ["STRENGTH", "Manifest", "files_beside", "find_manifests"]

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
