"""What a client is to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """A client's task. ``destination`` None: fetch and discard. ``room`` is the client's own directory."""

    url: str
    urls: Path
    files: int
    destination: Path | None
    connections: int
    cafile: str | None
    room: Path
    rate: float = 0.0
