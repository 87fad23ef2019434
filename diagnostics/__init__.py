"""Check whether HTTPS is concurrent in a process, find the cause where it is not, and measure remedies.

::

    from diagnostics import inspect, check

    inspect()   # facts and static causes of this process: no network, nothing imported, milliseconds
    check()     # measures in this process, against a TLS server of its own

This module imports nothing: ``python -m diagnostics`` runs it while the current directory is still first on
``sys.path``.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from diagnostics.in_process import check, inspect
    from diagnostics.model import Cause, Diagnosis, Remedy

__all__ = ["Cause", "Diagnosis", "Remedy", "check", "inspect"]

_HOMES = {
    "Cause": "diagnostics.model",
    "Diagnosis": "diagnostics.model",
    "Remedy": "diagnostics.model",
    "check": "diagnostics.in_process",
    "inspect": "diagnostics.in_process",
}


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
