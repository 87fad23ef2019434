"""Recognize limits that a program sets itself, and a fetch that requests nothing from the probe. Pure."""

from __future__ import annotations

import re
from typing import Any

from diagnostics.evidence import Case
from diagnostics.predicates import WAITING, Found, error_text, pool_place
from diagnostics.provoked import is_provoked
from diagnostics.source_places import ending
from diagnostics.verdict import opening
from diagnostics.waits import asleep, in_look_up, in_network, in_pool, in_turn, queued

__all__ = ["failed_before", "no_request", "queued_at_opening", "rate_limit", "small_pool", "time_elsewhere"]

_TAKEN_FOR = re.compile(r"(FileNotFoundError|IOError|gaierror): .*'https://")
_MOST = 0.8  # of the requests
_AGAIN = 1.5  # requests of one fetch, on average
_ASKS_AGAIN = (
    "It may sleep after an answer that it does not take, as that of the probe's server, or keep to a\n"
    "rate. That is no fault. With --url URL another server answers."
)
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
    lined = queued(case.observation.result, case.question.requests, case.judgement.concurrency)
    behind = case.own_frame(lined["stack"]) if lined else None
    others = f"{lined['most']} greenlets waited for each other{case.at(behind)}" if lined else ""
    served = case.judgement.served
    again = served is not None and served.chain >= _AGAIN
    how = "with a server of ours the time does not grow with its delay either"
    how = (how if case.observation.paced else "") if case.question.url else "however long the server does"
    return Found(
        at,
        [
            ", ".join(filter(None, [f"greenlets slept{ending('at', at)}; {took}", how])),
            others,
            case.served_line(),
        ],
        "each fetch makes several requests, and the program itself sleeps before some of them"
        if again
        else "",
        _ASKS_AGAIN if again else "",
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


def queued_at_opening(case: Case) -> str:
    """Return a note on greenlets that may queue while connections are opened; "" if none do."""
    queue, opened = case.judgement.queue, opening(case.question, case.observation)
    if queue is None or opened is None or case.judgement.verdict != "concurrent":
        return ""
    at = case.at(case.user_frame(queue.stack) or case.own_frame(queue.stack))
    return (
        f"{case.question.requests} requests without a delay, which open connections, took {opened:.2f} s:"
        f" greenlets went on one after the other{at}; whether they wait for each other there is not known"
    )


def no_request(case: Case) -> Found | None:
    judgement, last = case.judgement, case.observation.result["rounds"][-1:]
    if judgement.verdict != "error" or judgement.error or case.observation.served is None:
        return None
    if judgement.problem:
        return _never_fetches(case)
    many = last[0]["requests"] if last else 0
    came = case.observation.served.get(last[0]["run"], {"requests": 0})["requests"] if last else 0
    if not last or came >= many / 2:
        return None
    evidence = f"of {many} requests {came} came to the server of the probe"
    return Found("", [evidence], explanation=_expected(case))


def _never_fetches(case: Case) -> Found | None:
    """Match a function that waits for something else than HTTPS: it serves, or repeats something."""
    judgement = case.judgement
    if not case.question.target.app or case.observation.served or case.observation.result["rounds"]:
        return None
    parked = case.parked[0] if case.parked else None
    if parked is None or judgement.blocked + judgement.busy > case.lasted / 3:
        return None
    stack = parked["stack"]
    spot = case.own_frame(stack)
    others = in_turn(stack) and spot is not None and bool(WAITING.search(case.text(spot)))
    if others or in_look_up(stack) or in_network(stack) or in_pool(stack):
        return None
    at = case.where(spot)
    return Found(at, [f"it waits{ending('at', at)}; {judgement.problem}"], explanation=_expected(case))


def failed_before(case: Case) -> Found | None:
    """Match a function that ``--app`` names and that fails by itself, without a request."""
    if case.judgement.verdict != "error" or ":" not in case.question.target.app or not case.errors:
        return None
    if case.observation.served != {} or not all(map(_is_its_own, case.errors)):
        return None
    stack = case.errors[0]["stack"]
    at = case.where(case.user_frame(stack) or case.own_frame(stack))
    return Found(at, [error_text(case)], explanation=_expected(case))


def _is_its_own(error: dict[str, Any]) -> bool:
    """Return whether it is no error of HTTPS; nor is one where the URL is taken for a file or a host."""
    return is_provoked(error) or bool(_TAKEN_FOR.search(f"{error['class']}: {error['text']}"))


def _expected(case: Case) -> str:
    """Return what the function has to do that ``--app`` names; "" where there is none."""
    if ":" not in case.question.target.app:
        return ""
    return (
        "--app MODULE:CALLABLE expects a function of one argument, the URL, that fetches it.\n"
        "What is cached, mocked, or fetched from elsewhere says nothing about HTTPS here."
    )
