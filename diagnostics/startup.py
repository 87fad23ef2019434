"""Record what a command's interpreter does before the agent starts: its ``.pth`` files.

With ``-- COMMAND`` the agent starts as ``sitecustomize``, after the ``.pth`` files have run. So the same
interpreter is started once more, with the agent first, only to record them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from diagnostics.agent.https_agent.entrance import VARIABLE
from diagnostics.launch import new_outbox, write_spec
from diagnostics.model import Observation
from diagnostics.unpacking import agent_in

__all__ = ["with_startup"]

_PATIENCE = 60.0
_LISTS = ("patches", "injections", "contexts")


def with_startup(found: Observation) -> Observation:
    """Return ``found``, of a command, with what its interpreter did before the agent started, if
    anything."""
    if not found.seen["early"]:
        return found
    before = _recorded(found.facts["executable"])
    if before is None:
        return found
    seen = dict(found.seen)
    # Recorded events are numbered from 1, so these get numbers below that.
    events = [*before["imports"].values(), *(each for name in _LISTS for each in before[name])]
    first = max((event["at"] for event in events), default=0) + 1
    for event in events:
        event["at"] -= first
    seen["imports"] = {**before["imports"], **seen["imports"]}
    for name in _LISTS:
        seen[name] = before[name] + seen[name]
    seen["early"] = [name for name in seen["early"] if name not in seen["imports"]]
    return replace(found, seen=seen)


def _recorded(python: str) -> dict[str, Any] | None:
    """Return what the agent records while ``python`` starts; None if it reports nothing."""
    with tempfile.TemporaryDirectory(prefix="diagnostics-") as name:
        folder = Path(name)
        outbox = new_outbox(folder)
        spec = {"mode": "check", "outbox": str(outbox), "target": {"startup": True}, "remedies": []}
        unused = {"verify": None, "limit": 0.0, "chosen": None}
        env = {**os.environ, VARIABLE: str(write_spec(folder, {**spec, **unused}))}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [python, "-S", str(agent_in(folder) / "boot.py")],
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
        for path in outbox.glob("*-recorded-*.json"):
            seen: dict[str, Any] = json.loads(path.read_bytes())["seen"]
            return seen
    return None
