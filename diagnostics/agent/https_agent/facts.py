"""Collect the state of the process: that of ``https_inspection``, and what only the agent knows."""

import os
import sys

from . import frames, https_inspection, places
from .recorder import record

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

_CUSTOMIZE = ("sitecustomize", "usercustomize")

patched = https_inspection.patched


def collect():
    # type: () -> Dict[str, Any]
    """Return all facts, as they go into the JSON."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE) if resource is not None else (None, None)
    seen = https_inspection.facts()
    places.command()
    places.look_at_cells()
    written = sorted(places.sources, key=_number)
    packer = frames.start_code()
    return dict(
        seen,
        sources=places.sources,
        own_files=written + seen["own_files"],
        roots=written[:1] + _roots(bool(packer)),
        start_code=packer,
        runs_modules=_runs_modules(),
        xdist_worker=_is_xdist_worker(),
        descriptors=limits[0],
        most_descriptors=limits[1],
        threadpool=_threadpool(),
    )


def refreshed(facts):
    # type: (Dict[str, Any]) -> Dict[str, Any]
    """Return ``facts`` with what may have changed since they were collected; callable from any thread."""
    return dict(facts, **https_inspection.changing())


def _roots(is_packed):
    # type: (bool) -> List[str]
    """Return the user's files that are loaded by other code than the user's: where the application starts.

    They are in the order in which they started. An application that is packed is itself a package: what the
    packer's code loads is where it starts.
    """
    main = sys.modules.get("__main__")
    package = getattr(getattr(main, "__spec__", None), "parent", None) or ""
    found = []
    packed = ""  # the package that the packer's code loads first
    for number, name in enumerate(list(sys.modules)):
        path = https_inspection.file_of(name)
        spots = record.importers.get(name)
        if not path or (spots and spots[0]) or name in _CUSTOMIZE:
            continue
        whose = frames.kind_of_file(path)
        if is_packed and whose == "package" and spots and not spots[1]:
            packed = packed or name.partition(".")[0]
        if whose == "user" or (packed and packed == name.partition(".")[0] and spots and not spots[1]):
            # `python -m package.module` loads the package first.
            before = spots[2] if spots else number
            if package and (package + ".").startswith(name + "."):
                before = -1
            found.append((-2 if name == "__main__" and not package else before, frames.absolute(path)))
    files = [path for _, path in sorted(found)]
    # A launcher that runs it as `__main__` has been put out of the modules.
    launched = [record.main] if record.main and record.main not in files else []
    return files + launched if packed else launched + files


def _number(name):
    # type: (str) -> Tuple[int, str]
    """Return a key that sorts the cells of a notebook by their number."""
    digits = "".join(each for each in name if each.isdigit())
    return int(digits) if digits else 0, name


def _runs_modules():
    # type: () -> bool
    """Return whether ``python -m gevent.monkey`` of the loaded gevent has ``--module``."""
    monkey = sys.modules.get("gevent.monkey")
    names = [getattr(sys.modules.get("gevent"), "__file__", None), getattr(monkey, "__file__", None)]
    folders = [os.path.join(os.path.dirname(each), "monkey") for each in names[:1] if each]
    files = [os.path.join(folder, "_main.py") for folder in folders] + [each for each in names[1:] if each]
    files += [folder + ".py" for folder in folders]
    for file in files:
        try:
            with open(file[:-1] if file.endswith(".pyc") else file, "rb") as source:
                if b"run_module" in source.read():
                    return True
        except (IOError, OSError):
            continue
    return False


def _is_xdist_worker():
    # type: () -> bool
    """Return whether this process runs tests for pytest-xdist, by threads that run before any test's line.

    The variable alone does not say so: what a test starts inherits it.
    """
    started_by_text = not hasattr(sys.modules.get("__main__"), "__file__")
    return "PYTEST_XDIST_WORKER" in os.environ and "execnet.gateway_base" in sys.modules and started_by_text


def _threadpool():
    # type: () -> Any
    """Return the maximum number of threads in gevent's pool, which also looks up names."""
    local = sys.modules.get("gevent._hub_local")
    hub = local.get_hub_if_exists() if local is not None else None
    return getattr(hub, "threadpool_size", None) if hub is not None else None
