"""Recognize clients that wait in a way that gevent does not make concurrent. Pure.

gevent makes concurrent what waits in sockets of the standard library. An asyncio event loop, eventlet's
hub, and threads of the operating system wait elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from diagnostics.evidence import Case
from diagnostics.predicates import Found, error_text, put_back, untrusted
from diagnostics.source_places import Spot, ending, is_own

__all__ = ["asynchronous", "eventlet", "foreign", "threads"]

_ASYNCIO = re.compile(r"/(asyncio|uvloop|trio|curio)/[^/]*$")
_EVENTLET = re.compile(r"/eventlet/")
_IMPORTS_EVENTLET = r"^\s*(from|import)\s+eventlet\b"
_THREADS = re.compile(r"/(concurrent/futures|multiprocessing)/[^/]*$")
_NEAR = 12  # frames from the innermost one


def _goes_through(case: Case, stack: Sequence[Spot], files: re.Pattern[str]) -> bool:
    near = [spot for spot in stack[:_NEAR] if not is_own(spot, case.facts)]
    return any(files.search(str(spot[0]).replace("\\", "/")) for spot in near)


def _stacks(case: Case) -> Iterator[Sequence[Spot]]:
    """Yield the stacks that explain a bad verdict: of errors, of what held the hub, of waiting
    greenlets."""
    if case.judgement.verdict == "error":
        yield from (each["stack"] for each in case.errors)
    if case.blocked and case.judgement.blocked > max(0.3, case.lasted / 3):
        yield case.blocked[0]["stack"]
    if not case.errors:
        yield from (each["stack"] for each in case.parked[:3])


def _measured(case: Case) -> list[str]:
    many, judgement = case.question.requests, case.judgement
    held = case.held_line(case.blocked) if case.blocked else ""
    if error_text(case):
        return [error_text(case)]
    if judgement.problem:
        return [judgement.problem, held]
    took = f"{many} requests at once took {judgement.wall:.2f} s, and one waits {judgement.delay:g} s"
    return [took, held, case.served_line()]


def _client(case: Case, files: re.Pattern[str], name: str, line: str) -> Found | None:
    if untrusted(case) is not None:
        return None
    stack = next((each for each in _stacks(case) if _goes_through(case, each, files)), None)
    if stack is None:
        return None
    at = case.where(case.user_frame(stack) or case.own_line(line) or case.own_frame(stack))
    return Found(at, [f"the requests{ending('of', at)} wait in {name}", *_measured(case)])


def foreign(case: Case) -> Found | None:
    """Match where gevent supports none of the loaded clients, and the probe fetched with another one."""
    loaded = case.observation.result.get("foreign", ())
    if not loaded:
        return None
    names = " and ".join(each["name"] for each in loaded)
    at = case.where(loaded[0]["at"])
    by = case.observation.result.get("name") or "another client"
    many, judgement = case.question.requests, case.judgement
    took = (
        f"{many} requests at once of {by} took {judgement.wall:.2f} s, and one waits {judgement.delay:g} s"
    )
    return Found(
        at,
        [
            f"{names} is loaded{ending('by', at)}; requests, urllib3,"
            " a connection of http.client were not seen",
            f"measured was not this client: {took}",
        ],
    )


def asynchronous(case: Case) -> Found | None:
    return _client(case, _ASYNCIO, "an event loop of asyncio", r"^\s*(from|import)\s+asyncio\b")


def eventlet(case: Case) -> Found | None:
    found = _client(case, _EVENTLET, "eventlet's hub", _IMPORTS_EVENTLET)
    replaced = case.facts.get("eventlet_patched")
    if not replaced or (found is None and case.judgement.verdict == "concurrent"):
        return found
    calls = [each for each in case.seen["injections"] if each["module"] == "eventlet.patcher"]
    written = case.own_line(r"\bmonkey_patch\(") or case.own_line(_IMPORTS_EVENTLET)
    at = case.event_at(calls[0]) if calls else case.where(written)
    measured = found.evidence if found else _measured(case)
    return Found(at, [f"{', '.join(replaced)} are eventlet's, patched{ending('by', at)}", *measured])


def threads(case: Case) -> Found | None:
    if case.patched.get("thread") or put_back(case) is not None:
        return None
    return _client(case, _THREADS, "threads of the operating system", r"\bExecutor\b|\bThreadPool\b")
