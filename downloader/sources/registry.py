"""Look up the kind of source of a run."""

from __future__ import annotations

from typing import cast

from downloader.config.config import Config
from downloader.sources.source import SourceKind

__all__ = ["source_kind"]


def source_kind(config: Config) -> SourceKind:
    """Return the kind of source that ``config`` names."""
    return cast(SourceKind, config.source_kind)
