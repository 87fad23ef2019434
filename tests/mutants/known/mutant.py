"""What a known bug is."""

from __future__ import annotations

from dataclasses import dataclass

from syntax import Replacement

__all__ = ["Mutant"]


@dataclass(frozen=True)
class Mutant:
    """In the definition ``at`` (a qualified name, wherever its module stands) the source ``old`` becomes
    ``new``, and so with ``more``; all of ``tests`` together must notice. ``seconds``: what one test may
    take (a run that hangs is noticed by that)."""

    name: str
    harm: str
    at: str
    old: str
    new: str
    tests: tuple[str, ...]
    seconds: int = 60
    more: tuple[Replacement, ...] = ()

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """All that it changes."""
        return (Replacement(self.at, self.old, self.new), *self.more)
