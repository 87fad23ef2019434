"""Collect the state of the process: versions, what is patched, which TLS urllib3 uses. Imports nothing."""

import os
import sys

from . import frames
from .recorder import record

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_CUSTOMIZE = ("sitecustomize", "usercustomize")
_PACKAGES = (
    "aiohttp botocore certifi cryptography eventlet gevent gevent-openssl google-auth greenlet grequests"
    " gunicorn httpx ndg-httpsclient pyopenssl requests snowflake-connector-python truststore urllib3"
).split()


def _carried():
    # type: () -> Any
    """Return the facts about patching and TLS, of the downloader, which cannot be imported here."""
    module = type(sys)("tls_facts")
    with open(frames.TLS_FACTS) as source:
        exec(compile(source.read(), frames.TLS_FACTS, "exec"), module.__dict__)  # noqa: S102
    return module


_tls_facts = _carried()
patched = _tls_facts.patched
injected = _tls_facts.injected


def packages():
    # type: () -> Dict[str, str]
    """Return the installed versions of the relevant packages, from the names of their metadata folders."""
    found = {}  # type: Dict[str, str]
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except (OSError, TypeError):
            continue
        for name in names:
            stem, ending = os.path.splitext(name)
            if ending not in (".dist-info", ".egg-info") or "-" not in stem:
                continue
            package, version = stem.split("-")[:2]
            package = package.lower().replace("_", "-").replace(".", "-")
            if package in _PACKAGES:
                found.setdefault(package, version)
    return found


def _truststore():
    # type: () -> bool
    context = getattr(sys.modules.get("ssl"), "SSLContext", None)
    return (getattr(context, "__module__", None) or "").startswith("truststore")


def collect():
    # type: () -> Dict[str, Any]
    """Return all facts, as they go into the JSON."""
    gevent = sys.modules.get("gevent")
    ssl = sys.modules.get("ssl")
    return {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "implementation": getattr(getattr(sys, "implementation", None), "name", "cpython"),
        "executable": sys.executable,
        "library": os.path.dirname(os.path.abspath(os.__file__)),
        "prefix": sys.prefix,
        "packages": packages(),
        "gevent": getattr(gevent, "__version__", None),
        "patched": patched(),
        "pyopenssl_injected": bool(injected()),
        "injected_copies": injected(),
        "truststore_injected": _truststore(),
        "gevent_openssl": sorted(name for name in sys.modules if name.split(".")[0] == "gevent_openssl"),
        "eventlet_patched": _of_eventlet(),
        "openssl": getattr(ssl, "OPENSSL_VERSION", None),
        "cwd": frames.absolute("."),
        "path": [folder for folder in sys.path if isinstance(folder, str)],
        "own_files": _own_files(),
        "roots": _roots(),
        "descriptors": _descriptors()[0],
        "most_descriptors": _descriptors()[1],
        "threadpool": _threadpool(),
    }


def _of_eventlet():
    # type: () -> List[str]
    """Return the modules of the standard library that eventlet has patched."""
    patcher = sys.modules.get("eventlet.patcher")
    return sorted(str(name) for name in getattr(patcher, "already_patched", ()))


def refreshed(facts):
    # type: (Dict[str, Any]) -> Dict[str, Any]
    """Return ``facts`` with what may have changed since they were collected; callable from any thread."""
    ssl = sys.modules.get("ssl")
    return dict(
        facts,
        patched=patched(),
        pyopenssl_injected=bool(injected()),
        injected_copies=injected(),
        truststore_injected=_truststore(),
        eventlet_patched=_of_eventlet(),
        openssl=getattr(ssl, "OPENSSL_VERSION", None),
    )


def _file_of(name):
    # type: (str) -> str
    """Return the source file of a module; "" if it has none."""
    path = getattr(sys.modules.get(name), "__file__", None)
    if path is None and name == "__main__":
        # A script that has run to its end no longer has the attribute.
        script = (getattr(sys, "argv", None) or [""])[0]
        path = script if os.path.isfile(frames.absolute(script)) else None
    if not isinstance(path, str):
        return ""
    return path[:-1] if path.endswith(".pyc") else path


def _own_files():
    # type: () -> List[str]
    """Return the files of the user's own modules, to be searched where no stack shows the cause."""
    files = []
    for name in list(sys.modules):
        path = _file_of(name)
        if path.endswith(".py") and frames.kind_of_file(path) == "user":
            files.append(frames.absolute(path))
    return files[:500]


def _roots():
    # type: () -> List[str]
    """Return the user's files that are loaded by other code than the user's: where the application starts.

    They are in the order in which they started.
    """
    main = sys.modules.get("__main__")
    package = getattr(getattr(main, "__spec__", None), "parent", None) or ""
    found = []
    for number, name in enumerate(list(sys.modules)):
        path = _file_of(name)
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


def _descriptors():
    # type: () -> Any
    return resource.getrlimit(resource.RLIMIT_NOFILE) if resource is not None else (None, None)


def _threadpool():
    # type: () -> Any
    """Return the maximum number of threads in gevent's pool, which also looks up names."""
    local = sys.modules.get("gevent._hub_local")
    hub = local.get_hub_if_exists() if local is not None else None
    return getattr(hub, "threadpool_size", None) if hub is not None else None
