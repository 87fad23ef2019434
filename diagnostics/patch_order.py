"""Recognize what was set up before gevent patched ssl, and so keeps the unpatched version. Pure."""

from __future__ import annotations

import os
import re
from typing import Any

from diagnostics.evidence import Case
from diagnostics.predicates import Found, error_text
from diagnostics.source_places import Spot, absolute, ending, is_own, is_package, line_of
from diagnostics.waits import in_network

__all__ = ["early_context", "early_waiting", "too_late"]

_AMID = (
    "gevent asks all objects for their class before it patches ssl, and one that loads itself lazily (a\n"
    "proxy, a module, settings) imports the client then. Patch before it is made."
)
_CLIENTS = ("urllib3.util.ssl_", "urllib3", "requests")


def too_late(case: Case) -> Found | None:
    """Match if a client keeps the unpatched class; the place is the import that brought it."""
    classes = {error["class"] for error in case.errors}
    deep = any("Recursion" in each for each in classes) or "recursion depth" in error_text(case)
    if not deep or not case.ssl_before_patch or not _in_ssl(case):
        return None
    keeper = _keeper(case)
    # Servers and harmless modules import ssl as well: where no keeper is known, prefer a client. What was
    # imported after the patching did no harm.
    first = case.first_patch
    spots = [] if keeper else [case.first_import(name, before=first) for name in (*_CLIENTS, "ssl", "_ssl")]
    spot = _taken(case, keeper) if keeper else next(filter(None, spots), None)
    at = case.where(spot) or case.ssl_before_patch
    what = f"{keeper['module']} keeps the unpatched SSLContext; it" if keeper else "ssl"
    imported = f"{what} was imported{ending('by', at)}"
    if keeper and case.seen["imports"].get(keeper["module"], {}).get("amid"):
        return Found(at, [f"{imported}, amid the patching", case.patch_line(), error_text(case)], "", _AMID)
    return Found(at, [imported, f"afterwards {case.patch_line()}", error_text(case)])


def _in_ssl(case: Case) -> bool:
    """Return whether it is the properties of ssl's context that call themselves, not the program."""
    stacks = [error["stack"] for error in case.errors]
    return not any(stacks) or any(
        os.path.basename(str(spot[0])) == "ssl.py" for each in stacks for spot in each
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
    packages = [spot for spot in others if is_package(str(spot[0]))]
    taken: Spot | None = keeper["user"] or event.get("user") or next(iter(packages), None)
    return taken or keeper["caller"]


def early_context(case: Case) -> Found | None:
    """Match if a context was made before patching; with gevent's ssl unused, no context is too early."""
    first = case.first_patch
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
    made = _measured(case, early)
    spot = made["user"] or made["caller"]
    evidence = [
        f"an SSLContext was made{ending('by', case.where(spot))}, before {case.patch_line()}",
        error_text(case),
    ]
    return Found(case.where(spot), evidence)


def _measured(case: Case, early: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the context that was measured, where it is known which; else the first."""
    own = case.observation.result.get("early")
    if own is None:
        return early[0]
    there = [
        each
        for each in early
        if each["user"] and absolute(str(each["user"][0]), case.facts) == absolute(own["file"], case.facts)
    ]
    name = set(re.findall(r"\w+", own["name"]))
    named = [each for each in there if name.intersection(re.findall(r"\w+", case.text(each["user"])))]
    # What libraries make has another caller than the user's own line.
    direct = [each for each in early if each["user"] == each["caller"]]
    return next(iter([*named, *there, *direct, *early]))


# What a line waits in, and the calls that make one.
_LOCKS = "Lock|RLock|Semaphore|BoundedSemaphore|Condition|Event|Barrier|allocate_lock"
_QUEUES = "Queue|SimpleQueue|LifoQueue|PriorityQueue"
_SOCKETS = "socket|socketpair|create_connection|create_server"
_WAITS = (
    (rf"(?:{_LOCKS}|{_QUEUES})", r"\bwith\s+([\w.]+)\s*:|\b([\w.]+)\.(?:acquire|get|put|wait|join)\("),
    (
        rf"(?:{_SOCKETS})",
        r"\b([\w.]+)\.(?:recv|send|accept|connect|sendall|recv_into|recvfrom|sendto)\w*\(",
    ),
)
_POOLS = {"thread.py": "ThreadPoolExecutor", "pool.py": "ThreadPool"}


def early_waiting(case: Case) -> Found | None:
    """Match if the hub is held in a lock, a queue, a socket or a pool of threads from before patching."""
    held = case.blocked[0] if case.blocked else None
    if held is None or case.first_patch is None or case.judgement.blocked < max(0.3, case.lasted / 3):
        return None
    made = _made(case, held["stack"])
    if made is None:
        return None
    what, spot = made
    at = case.where(spot)
    return Found(
        at, [f"{what} was made{ending('by', at)}, before {case.patch_line()}", case.held_line([held])]
    )


def _made(case: Case, stack: list[Spot]) -> tuple[str, Spot] | None:
    """Return what the stack waits in, and where that was made; None if it was not before patching."""
    names = {_POOLS.get(os.path.basename(str(spot[0]))) for spot in stack[:4]}
    for event in reversed(case.seen.get("made", [])):
        if case.patched.get("thread") and event["cls"] in names and event["at"] < (case.first_patch or 0):
            spot = event["user"] or event["caller"]
            return (f"a {event['cls']}", spot) if spot else None
    own = case.user_frame(stack)
    if own is None or (in_network(stack) and stack[0] != own and "socket.py" not in str(stack[0][0])):
        return None
    for (kinds, waits), patched in zip(_WAITS, ("thread", "socket"), strict=True):
        found = re.search(waits, case.text(own)) if case.patched.get(patched) else None
        if found is None:
            continue
        name = next(filter(None, found.groups())).rpartition(".")[2]
        spot = case.own_line(rf"\b{name}\b[^=()]*=\s*.*\b{kinds}\(")
        if spot is not None and _is_before(case, spot):
            return "what it waits in", spot
    return None


def _is_before(case: Case, spot: Spot) -> bool:
    """Return False for a line below the first patching call in the same file: what it makes is gevent's."""
    caller = case.patching["caller"] if case.patching else None
    if caller is None or case.file(caller) != case.file(spot):
        return True
    return bool(spot[1] < caller[1])
