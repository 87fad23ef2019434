"""Define what a known bug is."""

from __future__ import annotations

from dataclasses import dataclass

from syntax import Replacement

__all__ = ["Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A bug: in the definition ``at`` (a qualified name, in any module) the source ``old`` becomes ``new``,
    and likewise with ``more``; at least one of ``tests`` must fail for it. ``seconds``: the time limit of a
    test (a run that hangs is caught by that)."""

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
        """Return all its replacements."""
        return (Replacement(self.at, self.old, self.new), *self.more)
