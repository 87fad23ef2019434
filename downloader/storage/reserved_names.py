"""Reserve the names of the run's own files in the destination, so that no download uses them.

The list of URLs, --report, --failures, --manifest, certificates, keys and netrc may be in the destination.
A download never replaces one of them, and they never replace a download.
"""

from __future__ import annotations

import os
from pathlib import Path

from downloader.config.config import Config
from downloader.core.item_states import published
from downloader.core.name_list import decode_names
from downloader.errors import ConfigError
from downloader.sinks.stored import place
from downloader.storage.journal import Journal

__all__ = ["check_reserved", "reserved_names"]


def reserved_names(config: Config) -> dict[str, str]:
    """Return the names of items that would replace a file of the run, each with the option of the file."""
    root = os.path.realpath(config.output)
    found: dict[str, str] = {}
    for option, path in config.own_files:
        directory, leaf = os.path.split(os.path.abspath(path))
        # The name as given, and the target if it is a symbolic link.
        for target in (os.path.join(os.path.realpath(directory), leaf), os.path.realpath(path)):
            relative = os.path.relpath(target, root)
            name = relative.split(os.sep, 2)[-1] if config.layout == "hashed" else relative
            if not relative.startswith("../") and place(name, config.layout) == relative:
                found.setdefault(name, option)
    return found


def check_reserved(config: Config, reserved: dict[str, str], journal: Journal) -> None:
    """Raise ConfigError if --report, --failures or --manifest names a file that the job has stored."""
    written = {
        name: option
        for name, option in reserved.items()
        if option in ("--report", "--failures", "--manifest")
        and (Path(config.output) / place(name, config.layout)).exists()
    }
    if not written:
        return
    for row in journal.batches():
        names = decode_names(row.names)
        if written.keys() & set(names):
            for mark in published(row.marks):
                if option := written.get(names[mark.index]):
                    raise ConfigError(
                        f"{option}: {names[mark.index]} is a file that was downloaded here; name another"
                    )
