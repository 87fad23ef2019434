"""Settle which of two measurements counts: with one client for all greenlets, and with one for each. Pure.

The agent measures both where it has not seen which of them the program has, or which adapter of its
session it uses, and the first does not show that requests are concurrent even so. Where they disagree,
there is no verdict.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile
from typing import Any

from diagnostics.errors import ProbeError
from diagnostics.evidence import Case
from diagnostics.model import Observation, Question
from diagnostics.redaction import redact
from diagnostics.source_places import Spot, ending, is_own, short, where
from diagnostics.verdict import Judgement, judge, least_slope

__all__ = ["settled", "shown", "unlike", "waited_elsewhere"]

_WATCH = "`watch -- COMMAND` in place of the check shows what holds its hub"
_ADVICE = "name a fetch that its greenlets call, a function of one URL: --app MODULE:CALLABLE"
_TURNS = ("own-lock", "pool-of-one")  # causes that are of a client
_NAMED = 3
_SOME = 3  # greenlets that wait; fewer may be on the way
_CLIENTS = re.compile(r"(?:-packages|\.whl|\.egg)/(requests|urllib3|httpx2?|httpcore2?|geventhttpclient)/")


def settled(question: Question, seen: Observation) -> Observation:
    """Return ``seen`` as it is where both measurements agree; raise ProbeError where they do not."""
    if "too" in seen.result:
        return _with_both(question, seen)
    other = seen.result.get("other")
    if other is None:
        return seen
    found = judge(question, seen), judge(question, replace(seen, result={**seen.result, **other}))
    if found[0].verdict == found[1].verdict:
        return seen
    one, each = map(_told, found)
    if prefixes := _prefixes(seen):
        raise ProbeError(
            f"{question.target.shown}: no verdict: through the adapter at {prefixes[0]} HTTPS is"
            f" {one}, through the one at {prefixes[1]} it is {each}, and the program has"
            f" fetched nothing yet; {_ADVICE}"
        )
    sharing = seen.result["sharing"]
    who = "it was not seen which of them the program has"
    if sharing["seen"] <= _SOME:
        who = f"{_few(sharing['seen'])}{_at(seen)}"
    raise ProbeError(
        f"{question.target.shown}: no verdict: with {_number(seen)} HTTPS is {one},"
        f" with one for each it is {each}, and {who}; {_ADVICE}"
    )


def _with_both(question: Question, seen: Observation) -> Observation:
    """Return ``seen``, where what the program may use later is like what its greenlets were seen to use.

    Raise ProbeError where it is not.
    """
    too = seen.result["too"]
    found = judge(question, seen), judge(question, replace(seen, result={**seen.result, **too}))
    if found[0].verdict == found[1].verdict:
        return seen
    one, other = map(_told, found)
    raise ProbeError(
        f"{question.target.shown}: no verdict: with {seen.result.get('name')}, which its greenlets were"
        f" seen{_at(seen)} to use, HTTPS is {one}, and with {too.get('name')}, which it has as well, it is"
        f" {other}; {_ADVICE}"
    )


def unlike(case: Case, cause: str) -> str:
    """Return how the program was seen to be other than what was measured, and what to do; "" if it was not.

    The copies of a client share what two of the program's clients may have one each of: a lock in an object
    of theirs. What the program does around its calls is not measured at all.
    """
    other = case.observation.result.get("unlike")
    if other and not other["others"] and case.judgement.verdict == "concurrent":
        name = case.observation.result.get("name")
        if other["copied"]:
            return (
                f"no verdict: the program opens TLS connections itself{case.at(other['at'])}: with its"
                " context and sockets they are concurrent, and what its code does with them was not"
                f" measured; {_WATCH}, or {_ADVICE}"
            )
        return (
            f"no verdict: the client{case.at(other['at'])} is none that can be copied, and the program has"
            f" no other; {name}, which it does not use, is concurrent; {_WATCH}, or {_ADVICE}"
        )
    sharing = case.observation.result.get("sharing") or {"evidence": "", "seen": 0, "waiting": []}
    seen, held = sharing["seen"], sharing["waiting"]
    verdict = case.judgement.verdict
    if verdict == "serialized" and sharing["evidence"] == "own" and cause in _TURNS:
        return (
            f"no verdict: {seen} greenlets were seen at once, each with a client of its own, and copies"
            f" of it wait for each other: they share what the clients do not; {_ADVICE}"
        )
    few = sharing["evidence"] == "unclear" and (seen <= _SOME or case.in_threads) and not held
    if verdict == "serialized" and few and (cause in _TURNS or _is_held_in_hook(case, cause)):
        who = f"only {seen} were seen in the pool" if case.in_threads and seen > 1 else _few(seen)
        return (
            "no verdict: requests wait for each other in what the client does, and"
            f" {who}{_at(case.observation)}; {_ADVICE}"
        )
    if verdict == "concurrent" and (waited := waited_elsewhere(case)):
        return f"no verdict: through the client HTTPS is concurrent, but {waited}, or {_ADVICE}"
    return ""


def waited_elsewhere(case: Case) -> str:
    """Return where most greenlets waited that were to fetch, outside of the client; "" if they did not."""
    sharing = case.observation.result.get("sharing") or {"waiting": []}
    held, using = sharing["waiting"], sharing.get("using", 0)
    through = (using + len(held)) / max(1, using)
    if len(held) < _SOME or through < least_slope(using + len(held)):
        return ""
    who = "threads of the pool" if case.in_threads else "greenlets"
    at = f"{case.at(held[0])}{_around(case, held[0])}"
    return f"{len(held)} {who} waited{at} while {using} used one; let them fetch without waiting there"


def _around(case: Case, spot: Spot) -> str:
    """Return the user's line that fetched, in brackets, where ``spot`` is a package's; "" without one."""
    at = case.observation.result["sharing"].get("at")
    if is_own(spot, case.facts) or not at or not is_own(at, case.facts):
        return ""
    return f", in a package, around {case.where(at)},"


def _told(found: Judgement) -> str:
    if found.verdict != "error":
        return found.verdict
    return f"failing ({found.error})" if found.error else "without a response"


def _few(seen: int) -> str:
    if seen == 1:
        return "only one greenlet was seen with it"
    return f"only {seen} greenlets were seen with one"


def _is_held_in_hook(case: Case, cause: str) -> bool:
    """Return whether a function of the user's that the client calls holds the hub: a hook, an ``auth``."""
    held = {"blocking-call": case.blocked, "cpu-bound": case.busy}.get(cause)
    stack = held[0]["stack"] if held else []
    called = takewhile(lambda spot: not _CLIENTS.search(str(spot[0]).replace("\\", "/")), stack)
    return case.user_frame(list(called)) is not None


def shown(seen: Observation, verdict: str) -> str:
    """Return how many clients were measured, and why so many; "" for one that is shared.

    Where requests were concurrent, it is said, too, that the program was not seen to make several at once.
    """
    sharing = seen.result.get("sharing") or {"many": 1, "seen": 0}
    if prefixes := _prefixes(seen):
        return (
            "the program has fetched nothing yet: measured was the narrowest of its session's adapters, at"
            f" {prefixes[0]}" + (f", and the widest, at {prefixes[1]}" if "other" in seen.result else "")
        )
    if "other" in seen.result:
        return (
            f"it was not seen whether greenlets share the client: measured with {_number(seen)},"
            " and with one for each"
        )
    few = sharing["seen"]
    if sharing["many"] == 1 and 1 <= few <= _SOME and verdict == "concurrent":
        reached, idle = seen.seen.get("reached"), sharing.get("idle", [])
        later = f"from {where(reached, seen.facts)} on" if reached else "later"
        others = f" while {len(idle)} waited{ending('at', where(idle[0], seen.facts))}" if idle else ""
        others += ", for work or for their turn" if idle else ""
        who = "one greenlet was" if few == 1 else f"{few} greenlets were"
        return (
            f"until the probe began, no more than {who} seen to fetch{_at(seen)}{others}: measured was what"
            f" its client does for several; what the program does {later} is not known"
        )
    others = _others(seen) if verdict == "concurrent" else ""
    if sharing["many"] == 1:
        return f"measured was the client that greenlets share: {others}" if others else ""
    who = f"{sharing['seen']} greenlets were seen"
    if verdict == "concurrent":
        others = f"; {others or 'what the program fetches later through another client is not known'}"
    if sharing["evidence"] == "own":
        return f"{who}, each with a client of its own: measured with one for each request{others}"
    return f"{who} with {sharing['many']} clients: measured with as many, in turn{others}"


def _others(seen: Observation) -> str:
    """Return what is not known of the clients that the program has besides the measured one; "" without."""
    clients: list[dict[str, Any]] = seen.result.get("clients") or []
    if not clients:
        return ""
    names = []
    for each in clients[:_NAMED]:
        place = where(each["at"], seen.facts) if each["at"] else short(each["file"], seen.facts)
        names.append(f"{each['name']} ({place})" if place else str(each["name"]))
    more = f" and {len(clients) - _NAMED} more" if len(clients) > _NAMED else ""
    told = f"{', '.join(names)}{more}"
    return f"what the program fetches through another client that it has, {told}, is not known"


def _prefixes(seen: Observation) -> list[str]:
    return [redact(each) for each in seen.result.get("prefixes", [])]


def _at(seen: Observation) -> str:
    """Return where the greenlet was that was seen with the client that is measured, in brackets."""
    at = seen.result["sharing"].get("at")
    return f" ({where(at, seen.facts)})" if at else ""


def _number(seen: Observation) -> str:
    many = seen.result["sharing"]["many"]
    return "one client for all greenlets" if many == 1 else f"{many} clients in turn"
