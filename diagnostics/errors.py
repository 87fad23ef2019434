"""What can go wrong with the examination itself; each with the exit code that it ends with.

::

    DiagnosticsError
    ├── UsageError       2  what was asked for makes no sense
    └── ProbeError       4  the probe could not be run
"""

from __future__ import annotations

__all__ = ["DiagnosticsError", "ProbeError", "UsageError"]


class DiagnosticsError(Exception):
    """One line for a person: what happened, to what, and what to do next."""

    exit_code = 4


class UsageError(DiagnosticsError):
    """What was asked for makes no sense."""

    exit_code = 2


class ProbeError(DiagnosticsError):
    """The probe could not be run."""
