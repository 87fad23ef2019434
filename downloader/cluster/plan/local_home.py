"""Name the directories that a job has on one machine, also where its plan or DEST is in a bucket."""

from __future__ import annotations

import os
import tempfile
import zlib
from pathlib import Path

from downloader.config.options import OutputOptions
from downloader.core.bucket_place import is_bucket
from downloader.files.directory import open_home
from downloader.storage.homes import home_of

__all__ = ["journal_beside_bucket", "local_home", "own_temporary"]


def own_temporary() -> str:
    """Return the directory for what is kept on this machine where no other is named."""
    return f"{tempfile.gettempdir()}/mass-downloader-{os.getuid()}"


def journal_beside_bucket(config: OutputOptions) -> str:
    """Return a local --journal for the job ``config``, whose plan is in a bucket."""
    mark = zlib.crc32(os.fsencode(f"{config.journal} {config.output}"))
    return f"{own_temporary()}/journal-{mark:08x}"


def local_home(config: OutputOptions) -> str:
    """Return the directory of the tool's own files for the job ``config``, on this machine if need be."""
    if not is_bucket(config.journal_root):
        return os.fspath(home_of(config.journal_root))
    # Anybody can make a directory of the name of the first before us.
    open_home(Path(own_temporary()), create=True, option="TMPDIR").close()
    with open_home(home_of(journal_beside_bucket(config)), create=True, option="TMPDIR") as home:
        return os.fspath(home)
