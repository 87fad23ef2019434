"""Reconstruct who patched and who injected, for a process that was not recorded.

Reads the sources of the modules that refer to gevent.monkey, or to an injection, and takes the first line
that calls it. Where several modules do, this is a guess; only a recording (``python -m diagnostics``) is
certain.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from diagnostics.agent.https_agent.recorder import Record

__all__ = ["reconstruct"]

_PATCH = re.compile(r"^[^#]*\b(patch_(?:all|socket|ssl|select|thread|time))\(([^)]*)\)")
_INJECT = re.compile(r"^[^#]*\b(inject_into_(?:urllib3|ssl))\(")
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))


def reconstruct(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what ``Record.seen`` would, as far as it can be reconstructed afterwards."""
    seen = Record().seen()
    for file in _files_that_name("gevent.monkey"):
        for number, line in _lines(file):
            if hit := _PATCH.match(line):
                arguments = dict(
                    each.split("=", 1) for each in hit[2].replace(" ", "").split(",") if "=" in each
                )
                seen["patches"].append({**_event(file, number), "function": hit[1], "arguments": arguments})
    for copy in facts["injected_copies"]:
        name = f"{copy}.contrib.pyopenssl"
        for file in _files_that_name(copy):
            hits = [number for number, line in _lines(file) if _INJECT.match(line)]
            if hits:
                event = {**_event(file, hits[0]), "module": name, "function": "inject_into_urllib3"}
                seen["injections"].append(event)
                break
        seen["connections"].append({**_event("", 0), "cls": f"{name}.WrappedSocket", "caller": None})
    early = _first_binder(facts)
    if early:
        seen["imports"]["ssl"] = {**_event(early, _import_line(early)), "at": 0}
    return seen


def _event(file: str, line: int) -> dict[str, Any]:
    spot = (file, line, "<module>")
    return {"caller": spot, "user": spot, "stack": [spot], "at": 1}


def _files_that_name(name: str) -> Iterator[str]:
    """Return the sources of the modules that refer to ``name`` or to something in it, the user's first."""
    found = []
    for own, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if not file.endswith(".py") or own.split(".")[0] in (
            name.split(".")[0],
            "diagnostics",
            "downloader",
        ):
            continue
        if _refers(module, name):
            found.append(file)
    return iter(sorted(found, key=lambda file: "-packages" in file or file.startswith(_LIBRARY)))


def _refers(module: ModuleType, name: str) -> bool:
    for value in list(vars(module).values()):
        named = "__name__" if isinstance(value, ModuleType) else "__module__"
        if not isinstance(value, (ModuleType, FunctionType, type)):
            continue
        origin = str(getattr(value, named, ""))
        if f"{origin}.".startswith(f"{name}.") or (
            isinstance(value, ModuleType) and origin == name.split(".")[0]
        ):
            return True
    return False


def _lines(file: str) -> Iterator[tuple[int, str]]:
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            yield from enumerate(lines, 1)
    except OSError:
        return


def _first_binder(facts: dict[str, Any]) -> str:
    """Return the user's file that imported what bound ssl before it was patched; "" if there is none."""
    original = getattr(sys.modules.get("gevent.monkey"), "saved", {}).get("ssl", {}).get("SSLContext")
    tls = sys.modules.get("urllib3.util.ssl_")
    if original is None or getattr(tls, "SSLContext", None) is not original:
        return ""
    return next((file for file in facts["own_files"] if _import_line(file)), "")


def _import_line(file: str) -> int:
    pattern = re.compile(r"^\s*(?:from|import)\s+(?:requests|urllib3|grequests|boto3|botocore)\b")
    return next((number for number, line in _lines(file) if pattern.match(line)), 0)
