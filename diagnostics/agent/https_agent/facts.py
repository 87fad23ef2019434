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

# By module: the names that are the same object in gevent's module once it is patched.
_PATCHED = {
    "socket": ("socket", ("socket",)),
    "dns": ("socket", ("getaddrinfo",)),
    "ssl": ("ssl", ("SSLContext",)),
    "select": ("select", ("select", "poll")),
    "time": ("time", ("sleep",)),
    "thread": ("thread" if sys.version_info[0] == 2 else "_thread", ("start_new_thread", "allocate_lock")),
    "threading": ("threading", ("local",)),
    "os": ("os", ("fork",)),
    "subprocess": ("subprocess", ("Popen",)),
    "queue": ("queue", ("SimpleQueue",)),
}
_CUSTOMIZE = ("sitecustomize", "usercustomize")
_PACKAGES = (
    "aiohttp botocore certifi cryptography eventlet gevent gevent-openssl google-auth greenlet grequests"
    " gunicorn httpx ndg-httpsclient pyopenssl requests snowflake-connector-python truststore urllib3"
).split()


def patched():
    # type: () -> Dict[str, bool]
    """Return for each relevant module of the standard library whether its functions are gevent's.

    They are compared with gevent's objects by identity: gevent's own flag stays set when the original is
    restored.
    """
    found = {}
    for key, (name, attributes) in _PATCHED.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        ok = [_ours(name, each, getattr(module, each)) for each in attributes if hasattr(module, each)]
        if ok:
            found[key] = all(ok)
    return found


def _ours(name, attribute, value):
    # type: (str, str, Any) -> bool
    theirs = sys.modules.get("gevent." + name.lstrip("_"))
    if theirs is not None and hasattr(theirs, attribute):
        return getattr(theirs, attribute) is value
    if name == "ssl":
        for other in ("gevent._ssl3", "gevent._sslgte279"):
            if getattr(sys.modules.get(other), attribute, None) is value:
                return True
    return (getattr(value, "__module__", None) or "").startswith("gevent")


def injected():
    # type: () -> List[str]
    """Return the copies of urllib3, vendored ones too, whose TLS is pyOpenSSL's."""
    copies = []
    for name in sorted(name for name in sys.modules if name.endswith(".util.ssl_")):
        tls = sys.modules[name]
        util = sys.modules.get(name[: -len(".ssl_")])
        context = getattr(tls, "SSLContext", None)
        flags = [getattr(module, "IS_PYOPENSSL", False) for module in (tls, util)]
        if any(flag is True for flag in flags) or "pyopenssl" in (getattr(context, "__module__", "") or ""):
            copies.append(name[: -len(".util.ssl_")])
    return copies


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
