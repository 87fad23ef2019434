"""Reserve the names of the run's own files in the destination, so that no download uses them.

The list of URLs, --report, --failures, --manifest, certificates, keys and netrc may be in the destination.
A download never replaces one of them, and they never replace a download.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.config.options import OutputOptions
from downloader.core.item_states import published
from downloader.core.name_list import decode_names
from downloader.core.naming import folded
from downloader.errors import ConfigError
from downloader.files.below import name_below
from downloader.sinks.stored import place
from downloader.storage.journal import Journal
from downloader.storage.name_probes import folds_names

__all__ = ["Reserved", "check_reserved", "reserved_names"]


class Reserved(msgspec.Struct, frozen=True):
    """The names of items that would replace a file of the run, each with the option of the file.

    ``folds``: names that differ in case only are one file, so each is kept as ``folded`` makes it.
    """

    names: dict[str, str] = {}
    folds: bool = False

    def __bool__(self) -> bool:
        return bool(self.names)

    def option(self, name: str) -> str | None:
        """Return the option of the file that ``name`` is reserved for, None if it is not."""
        return self.names.get(folded(name) if self.folds else name)


def reserved_names(config: Config) -> Reserved:
    """Return the names that the files of the run have. Raises DestinationError."""
    root = os.path.realpath(config.output)
    found: dict[str, str] = {}
    for option, path in config.own_files:
        directory, leaf = os.path.split(os.path.abspath(path))
        # The name as given, and the target if it is a symbolic link.
        for target in (os.path.join(os.path.realpath(directory), leaf), os.path.realpath(path)):
            # An entry of the destination may be a link, which is not followed here.
            relative = name_below(target, root) or os.path.relpath(target, root)
            name = relative.split(os.sep, 2)[-1] if config.layout == "hashed" else relative
            if not relative.startswith("../") and place(name, config.layout) == relative:
                found.setdefault(name, option)
    if not found or not folds_names(root):
        return Reserved(found)
    return Reserved({folded(name): option for name, option in found.items()}, folds=True)


def check_reserved(config: OutputOptions, reserved: Reserved, journal: Journal) -> None:
    """Raise ConfigError if --report, --failures or --manifest names a file that the job has stored."""
    written = {
        name: option
        for name, option in reserved.names.items()
        if option in ("--report", "--failures", "--manifest")
        and (Path(config.output) / place(name, config.layout)).exists()
    }
    if not written:
        return
    reserved = msgspec.structs.replace(reserved, names=written)
    for row in journal.batches():
        names = decode_names(row.names)
        if any(map(reserved.option, names)):
            for mark in published(row.marks):
                if option := reserved.option(names[mark.index]):
                    raise ConfigError(
                        f"{option}: {names[mark.index]} is a file that was downloaded here; name another"
                    )
