"""Define the errors of an examination, each with its exit code.

::

    DiagnosticsError
    ├── UsageError       2  the arguments are wrong
    └── ProbeError       4  the probe could not be run
"""

from __future__ import annotations

__all__ = ["DiagnosticsError", "ProbeError", "UsageError"]


class DiagnosticsError(Exception):
    """The base of all errors here. The text is one line: what happened, to what, and what to do next."""

    exit_code = 4


class UsageError(DiagnosticsError):
    """The arguments are wrong, or contradict each other."""

    exit_code = 2


class ProbeError(DiagnosticsError):
    """The probe could not be run."""
