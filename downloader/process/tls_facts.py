"""State which functions of the standard library must be gevent's, and find pyOpenSSL in urllib3.

``process.patching`` decides by these facts, and the agent of the diagnostics reports them. The agent loads
this file into any process that it examines. So it runs on Python 2.7 and from 3.6, and imports nothing that
such a process may not have imported yet.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

__all__ = ["STANDARD", "injected", "is_gevents", "missing", "patched", "tls_of_urllib3"]

_THREAD = "thread" if sys.version_info[0] == 2 else "_thread"

STANDARD = {
    "socket": ("socket", ("socket", "create_connection")),
    "dns": ("socket", ("getaddrinfo",)),
    "ssl": ("ssl", ("SSLContext", "SSLSocket")),
    "select": ("select", ("select", "poll")),
    "selectors": ("selectors", ("DefaultSelector",)),
    "thread": (_THREAD, ("start_new_thread", "allocate_lock", "get_ident")),
    "threading": ("threading", ("local",)),
    "time": ("time", ("sleep",)),
    "os": ("os", ("fork",)),
    "subprocess": ("subprocess", ("Popen",)),
    "signal": ("signal", ("signal",)),
    "queue": ("queue", ("SimpleQueue",)),
}  # type: Dict[str, Tuple[str, Tuple[str, ...]]]
"""By fact: a module of the standard library, and its functions that gevent replaces."""


def is_gevents(module, attribute):
    # type: (str, str) -> bool
    """Return whether ``attribute`` of a module of the standard library is gevent's; imports nothing.

    Objects are compared by identity: ``gevent.monkey.is_object_patched`` still returns True after an
    attribute was replaced once more.
    """
    value = getattr(sys.modules.get(module), attribute, None)
    if value is None:
        return False
    theirs = sys.modules.get("gevent." + module.lstrip("_"))
    if hasattr(theirs, attribute):
        return getattr(theirs, attribute) is value
    # gevent has the object in a module of another name: `gevent._ssl3`, `gevent._sslgte279`.
    return (getattr(value, "__module__", None) or "").split(".")[0] == "gevent"


def missing():
    # type: () -> List[str]
    """Return the functions of ``STANDARD``, as ``module.function``, that are not gevent's now."""
    return [
        module + "." + attribute
        for module, attributes in STANDARD.values()
        for attribute in attributes
        if not is_gevents(module, attribute)
    ]


def patched():
    # type: () -> Dict[str, bool]
    """Return for each fact of ``STANDARD`` whether its functions are gevent's.

    Modules that are not imported, and functions that this version of Python lacks, are left out.
    """
    found = {}  # type: Dict[str, bool]
    for fact, (module, attributes) in STANDARD.items():
        present = [each for each in attributes if hasattr(sys.modules.get(module), each)]
        if present:
            found[fact] = all(is_gevents(module, each) for each in present)
    return found


def tls_of_urllib3():
    # type: () -> Iterator[Tuple[str, bool, Any]]
    """Yield name, whether pyOpenSSL is injected, and SSLContext of each copy of urllib3, also vendored."""
    for name in sorted(name for name in list(sys.modules) if name.endswith(".util.ssl_")):
        tls, util = sys.modules[name], sys.modules.get(name[: -len(".ssl_")])
        context = getattr(tls, "SSLContext", None)
        flags = [getattr(module, "IS_PYOPENSSL", False) for module in (tls, util)]
        # A module that loads itself lazily may return anything for a name that it does not have.
        is_injected = any(flag is True for flag in flags)
        is_injected = is_injected or "pyopenssl" in (getattr(context, "__module__", "") or "")
        yield name[: -len(".util.ssl_")], is_injected, context


def injected():
    # type: () -> List[str]
    """Return the names of the copies of urllib3 that have pyOpenSSL injected."""
    return [copy for copy, is_injected, _ in tls_of_urllib3() if is_injected]
