"""Recognize what was set up before gevent patched ssl, and so keeps the unpatched version. Pure."""

from __future__ import annotations

import os
from typing import Any

from diagnostics.evidence import Case
from diagnostics.predicates import Found, error_text
from diagnostics.source_places import Spot, absolute, is_own, line_of

__all__ = ["early_context", "too_late"]

_CLIENTS = ("urllib3.util.ssl_", "urllib3", "requests")


def too_late(case: Case) -> Found | None:
    """Match if a client keeps the unpatched class; the place is the import that brought it."""
    classes = {error["class"] for error in case.errors}
    deep = any("Recursion" in each for each in classes) or "recursion depth" in error_text(case)
    if not deep or not case.ssl_before_patch:
        return None
    keeper = _keeper(case)
    # Servers and harmless modules import ssl as well: where no keeper is known, prefer a client.
    spots = [] if keeper else [case.first_import(name) for name in (*_CLIENTS, "ssl", "_ssl")]
    spot = _taken(case, keeper) if keeper else next(filter(None, spots), None)
    at = case.where(spot) or case.ssl_before_patch
    what = f"{keeper['module']} keeps the unpatched SSLContext; it" if keeper else "ssl"
    return Found(
        at,
        [f"{what} was imported by {at}", f"afterwards {case.patch_line()}", error_text(case)],
    )


def _keeper(case: Case) -> dict[str, Any] | None:
    """Return the module whose unpatched context or class caused the error.

    Many modules may keep one that they never use, or only for a server.
    """
    keepers = [each for each in case.seen.get("keepers", ()) if each["client"]]
    by_file = {absolute(each["file"], case.facts): each for each in reversed(keepers)}
    for error in case.errors:
        for spot in error["stack"]:
            found: dict[str, Any] | None = by_file.get(absolute(str(spot[0]), case.facts))
            if found:
                return found
    return next((each for each in keepers if each["module"].endswith(".ssl_")), None)


def _taken(case: Case, keeper: dict[str, Any]) -> Spot | None:
    """Return the line that brought the class in: in the user's own file, else the one that led to the
    import."""
    if is_own((keeper["file"], 0, ""), case.facts):
        spot = line_of([keeper["file"]], r"^\s*(from\s+ssl\s+import|import\s+ssl)\b", case.facts)
        if spot:
            return spot
    # An installed application is a package, too: look for what imports the packages of the client.
    own = {keeper["module"].partition(".")[0], *_CLIENTS}
    event: dict[str, Any] = case.seen["imports"].get(keeper["module"], {})
    stack: list[Spot] = event.get("stack", [])
    others = [spot for spot in stack if not own & set(str(spot[0]).split(os.sep))]
    packages = [spot for spot in others if "-packages" in str(spot[0])]
    taken: Spot | None = keeper["user"] or event.get("user") or next(iter(packages), None)
    return taken or keeper["caller"]


def early_context(case: Case) -> Found | None:
    """Match if a context was made before patching; with gevent's ssl unused, no context is too early."""
    first = min((each["at"] for each in case.seen["patches"]), default=None)
    if first is None or case.pyopenssl or not case.patched.get("ssl"):
        return None
    copies = [event for name, event in case.seen["imports"].items() if name.endswith(".ssl_")]
    if any(event["at"] < first for event in copies):
        return None  # urllib3 itself was imported too early, so every context that it makes is broken
    early = [
        each
        for each in case.seen["contexts"]
        if each["at"] < first and not each["cls"].startswith("OpenSSL")
    ]
    used = case.socket_class == "ssl.SSLSocket" or case.judgement.verdict == "error"
    if not early or not used:
        return None
    spot = early[0]["user"] or early[0]["caller"]
    evidence = [
        f"an SSLContext was made by {case.where(spot)}, before {case.patch_line()}",
        error_text(case),
    ]
    return Found(case.where(spot), evidence)
