"""Reconstruct who patched and who injected, for a process that was not recorded: see ``https_inspection``.

Where several modules do, this is a guess; only a recording (``python -m diagnostics``) is certain.
"""

from __future__ import annotations

from typing import Any

from diagnostics.agent.https_agent import https_inspection
from diagnostics.agent.https_agent.recorder import Record

__all__ = ["reconstruct"]


def reconstruct(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what ``Record.seen`` would, as far as it can be reconstructed afterwards."""
    seen = Record().seen()
    for file, line, hit in https_inspection.patches():
        arguments = dict(each.split("=", 1) for each in hit[2].replace(" ", "").split(",") if "=" in each)
        seen["patches"].append({**_event(file, line), "function": hit[1], "arguments": arguments})
    for copy in facts["injected_copies"]:
        name = f"{copy}.contrib.pyopenssl"
        for file, line, _ in https_inspection.injections(copy):
            event = {**_event(file, line), "module": name, "function": "inject_into_urllib3"}
            seen["injections"].append(event)
        seen["connections"].append({**_event("", 0), "cls": f"{name}.WrappedSocket", "caller": None})
    early = https_inspection.early_import(facts["own_files"])
    if early:
        seen["imports"]["ssl"] = {**_event(*early), "at": 0}
    return seen


def _event(file: str, line: int) -> dict[str, Any]:
    spot = (file, line, "<module>")
    return {"caller": spot, "user": spot, "stack": [spot], "at": 1}
