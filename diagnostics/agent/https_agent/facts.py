"""Collect the state of the process: that of ``https_inspection``, and what only the agent knows."""

import os
import sys

from . import frames, https_inspection
from .recorder import record

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_CUSTOMIZE = ("sitecustomize", "usercustomize")

patched = https_inspection.patched


def collect():
    # type: () -> Dict[str, Any]
    """Return all facts, as they go into the JSON."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE) if resource is not None else (None, None)
    return dict(
        https_inspection.facts(),
        roots=_roots(),
        descriptors=limits[0],
        most_descriptors=limits[1],
        threadpool=_threadpool(),
    )


def refreshed(facts):
    # type: (Dict[str, Any]) -> Dict[str, Any]
    """Return ``facts`` with what may have changed since they were collected; callable from any thread."""
    return dict(facts, **https_inspection.changing())


def _roots():
    # type: () -> List[str]
    """Return the user's files that are loaded by other code than the user's: where the application starts.

    They are in the order in which they started.
    """
    main = sys.modules.get("__main__")
    package = getattr(getattr(main, "__spec__", None), "parent", None) or ""
    found = []
    for number, name in enumerate(list(sys.modules)):
        path = https_inspection.file_of(name)
        spots = record.importers.get(name)
        if not path or (spots and spots[0]) or name in _CUSTOMIZE:
            continue
        if frames.kind_of_file(path) == "user":
            # `python -m package.module` loads the package first.
            before = spots[2] if spots else number
            if package and (package + ".").startswith(name + "."):
                before = -1
            found.append((-2 if name == "__main__" and not package else before, frames.absolute(path)))
    return [path for _, path in sorted(found)]


def _threadpool():
    # type: () -> Any
    """Return the maximum number of threads in gevent's pool, which also looks up names."""
    local = sys.modules.get("gevent._hub_local")
    hub = local.get_hub_if_exists() if local is not None else None
    return getattr(hub, "threadpool_size", None) if hub is not None else None
