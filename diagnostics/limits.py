"""Recognize limits that a program sets itself, and a fetch that requests nothing from the probe. Pure."""

from __future__ import annotations

from diagnostics.evidence import Case
from diagnostics.predicates import Found, pool_place
from diagnostics.source_places import ending
from diagnostics.waits import asleep, in_pool, queued

__all__ = ["no_request", "rate_limit", "small_pool", "time_elsewhere"]

_MOST = 0.8  # of the requests
_BEFORE = "the requests overlap, and greenlets wait for each other before them"
_NOT_AROUND = (
    "What they wait for is around something else than the requests: the lock of a token, say. That is no\n"
    "fault, unless it takes long."
)


def rate_limit(case: Case) -> Found | None:
    parked = asleep(case.observation.result)
    if case.judgement.limit != "rate-limit" or parked is None:
        return None
    at = case.where(case.own_frame(parked["stack"]))
    took = f"{case.question.requests} requests took {case.judgement.wall:.2f} s"
    how = "with a server of ours the time does not grow with its delay either"
    how = (how if case.observation.paced else "") if case.question.url else "however long the server does"
    return Found(
        at,
        [", ".join(filter(None, [f"greenlets slept{ending('at', at)}; {took}", how])), case.served_line()],
    )


def small_pool(case: Case) -> Found | None:
    if case.judgement.limit != "small-pool":
        return None
    parked = queued(case.observation.result, case.question.requests, case.judgement.concurrency)
    if parked is None:
        return None
    waits = case.where(case.own_frame(parked["stack"]))
    at = pool_place(case, parked["stack"]) if in_pool(parked["stack"]) else waits
    for_it = " for a thread of a gevent.threadpool.ThreadPool" if case.in_threads else ""
    waited = f"{parked['most']} greenlets waited at once{for_it}{ending('at', waits)}"
    served = case.judgement.served
    if served is not None and served.peak > _MOST * case.question.requests:
        return Found(at, [waited, case.served_line()], _BEFORE, _NOT_AROUND)
    return Found(at, [waited, case.served_line()])


def time_elsewhere(case: Case) -> Found | None:
    if case.judgement.limit != "time-elsewhere":
        return None
    parked = case.parked[0] if case.parked else None
    at = case.where(case.own_frame(parked["stack"])) if parked else ""
    took = f"{case.question.requests} requests took {case.judgement.wall:.2f} s"
    return Found(at, [f"{took}, and one waits {case.judgement.delay:g} s", case.served_line()])


def no_request(case: Case) -> Found | None:
    served = case.judgement.served
    if case.judgement.verdict != "error" or case.judgement.error or case.judgement.problem:
        return None
    if served is None or served.requests >= case.question.requests / 2:
        return None
    many = case.question.requests
    return Found("", [f"of {many} requests {served.requests} came to the server of the probe"])
