"""Define how a check ended, as it is given to the reports, and how text of a program is shown in them."""

from __future__ import annotations

from dataclasses import dataclass

from diagnostics.model import Diagnosis, Question
from diagnostics.redaction import redact

__all__ = ["Outcome", "shown"]


@dataclass(frozen=True)
class Outcome:
    """How a check ended. ``found``: None where the probe could not be run; ``error`` says why.

    ``expected``: the verdict that was to be found; ``seconds``: how long the check took.
    """

    question: Question
    found: Diagnosis | None
    exit_code: int
    seconds: float
    error: str = ""
    expected: str = "concurrent"

    @property
    def passed(self) -> bool:
        """Return whether the exit code is 0."""
        return self.exit_code == 0


def shown(text: str) -> str:
    """Return text of the examined program without secrets, its invisible characters as escapes.

    What is left are printable characters, line breaks and tabs: nothing that XML forbids, that moves a
    terminal's cursor, or that reverses the order of what follows.
    """
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in redact(text)
    )
