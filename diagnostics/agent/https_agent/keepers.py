"""Find modules that keep what ssl had before gevent patched it: such a class or context stays unpatched."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_OURS = ("gevent", "https_agent", "diagnostics", "ssl", "_ssl")
_TLS_CLIENT, _TLS_SERVER = 16, 17


def found(importers):
    # type: (Dict[str, Any]) -> List[Dict[str, Any]]
    """Return one record for each kept class or context.

    It has the ``module``, its ``file``, the ``name`` in it, the ``kind`` (``class`` or ``context``),
    whether a ``client`` may use it, and where the module was imported: ``user`` and ``caller``.
    """
    ssl, monkey = sys.modules.get("ssl"), sys.modules.get("gevent.monkey")
    original = getattr(monkey, "saved", {}).get("ssl", {}).get("SSLContext")
    current = getattr(ssl, "SSLContext", None)
    if original is None or current is None or original is current:
        return []
    keepers = []
    for name in list(sys.modules):
        if name.partition(".")[0] in _OURS:
            continue
        for variable, value in list(getattr(sys.modules[name], "__dict__", {}).items()):
            kind = _kind(value, original, current)
            if kind:
                user, caller = importers.get(name, (None, None, 0))[:2]
                keepers.append(
                    {
                        "module": name,
                        "name": variable,
                        "file": getattr(sys.modules[name], "__file__", None) or "",
                        "kind": kind,
                        "client": kind == "class" or _is_client(value),
                        "user": user,
                        "caller": caller,
                    }
                )
    return keepers


def _kind(value, original, current):
    # type: (Any, Any, Any) -> str
    # Not isinstance(): it reads __class__ of proxies, which may not be bound to an object yet.
    kind = value if isinstance(value, type) and type(value) is type else type(value)
    if not issubclass(kind, original) or issubclass(kind, current):
        return ""
    return "class" if kind is value else "context"


def _is_client(context):
    # type: (Any) -> bool
    """Return True for a client's context. A server's context checks no host name."""
    return bool(
        context.protocol == _TLS_CLIENT or (context.protocol != _TLS_SERVER and context.check_hostname)
    )
