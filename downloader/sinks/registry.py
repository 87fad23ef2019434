"""Look up the kind of sink of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from downloader.config.config import Config
from downloader.config.sink_kinds import SINK_KINDS
from downloader.core.ownership import Rules
from downloader.files.directory import Directory
from downloader.sinks.sink import ChecksPlace, Sink, SinkKind, Stages, Undo, Undoes, Verify

__all__ = [
    "check_place",
    "distrust",
    "forget_staged",
    "open_sink",
    "sink_kind",
    "staged_in",
    "undoer",
    "verifier",
]


def sink_kind(store: str) -> SinkKind:
    """Return the kind of sink that ``store`` names. Raises ConfigError if there is none."""
    return cast(SinkKind, SINK_KINDS.named(store))


def open_sink(config: Config, rules: Rules) -> Sink:
    """Return the sink that ``config`` names; ``rules`` decide about existing files."""
    return sink_kind(config.store).open(config, rules)


def verifier(store: str, root: Path, identity: str) -> Verify:
    """Return a function that verifies the files under ``root``, stored with ``store``; see ``SinkForm``."""
    inspect = sink_kind(store).inspector(root, identity)
    return lambda written: not inspect(written)


def undoer(store: str, root: Path, identity: str, prefix: str) -> Undo | None:
    """Return what undoes replacements under ``root`` (``Undoes``); None if files are not replaced so."""
    kind = sink_kind(store)
    return kind.undoer(root, identity, prefix) if isinstance(kind, Undoes) else None


def check_place(config: Config) -> None:
    """See ``ChecksPlace``; do nothing for other kinds, and for a slice: the driver has done it."""
    if not config.slice and isinstance(kind := config.sink_kind, ChecksPlace):
        kind.check_place(config)


def staged_in(store: str, home: Directory) -> Callable[[int], tuple[int, int]]:
    """Return what counts the items of a shard that are kept in ``home``, and their bytes (``Stages``)."""

    def count(shard: int) -> tuple[int, int]:
        kind = sink_kind(store)  # not before: its package may not be installed any more
        return kind.staged(home, shard) if isinstance(kind, Stages) else (0, 0)

    return count


def distrust(store: str, home: Directory) -> None:
    """See ``Stages``; do nothing for other kinds."""
    if isinstance(kind := sink_kind(store), Stages):
        kind.distrust(home)


def forget_staged(home: Directory) -> None:
    """Remove what jobs of every kind have left in ``home`` (``Stages``). Raises ConfigError, OSError."""
    for kind in SINK_KINDS:
        if isinstance(kind, Stages):
            kind.forget(home)
