"""Recognize each cause in an observation, and say where it is. Pure.

Each predicate returns None, or the place and the evidence. ``diagnostics.causes`` has the table and its
order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from diagnostics.evidence import Case
from diagnostics.source_places import Spot, ending
from diagnostics.waits import (
    in_future,
    in_look_up,
    in_network,
    in_pool,
    in_queue,
    in_sleep,
    in_turn,
    pool_made,
)
from downloader.core.redact import redact_url


class Found(NamedTuple):
    """A match. ``where``: file:line; ``evidence``: one line each, empty ones are left out.

    ``summary`` and ``explanation``: in place of those of the table, where these do not fit all matches.
    """

    where: str
    evidence: list[str]
    summary: str = ""
    explanation: str = ""


def _serialized(case: Case) -> bool:
    """Return whether it was serialized, or failed while something held the hub.

    Against a server with a short timeout, a held hub shows as errors.
    """
    held = case.judgement.blocked > max(0.3, case.lasted / 3)
    return case.judgement.verdict == "serialized" or held


def error_text(case: Case) -> str:
    return case.judgement.error


# causes outside of the process


def serial_server(case: Case) -> Found | None:
    control = case.observation.control
    if control is None or case.judgement.verdict != "serialized":
        return None
    if control < case.judgement.wall * 0.6:
        return None
    many = case.question.requests
    return Found(
        redact_url(case.question.url),
        [
            f"{many} requests from plain threads of a clean process took {control:.2f} s as well",
            f"one request takes {case.judgement.delay:.2f} s",
        ],
    )


# set-ups that break


def too_few_descriptors(case: Case) -> Found | None:
    text = error_text(case)
    if "Too many open files" not in text and "Errno 24" not in text:
        return None
    spot = case.own_frame(case.errors[0]["stack"]) if case.errors else None
    limit = case.facts.get("descriptors")
    return Found(case.where(spot), [text, f"this process may have {limit} files and sockets open"])


_OF_TRUSTSTORE = re.compile(r"truststore/_\w+\.py$")


def truststore(case: Case) -> Found | None:
    """Match if requests fail or wait in truststore's class; where it is put into ssl, it may be unused."""
    calls = [each for each in case.seen["injections"] if each["function"] == "inject_into_ssl"]
    packages = {"truststore", *(str(each["module"]).removesuffix("._api") for each in calls)}
    made = [
        each
        for each in case.seen["contexts"]
        if "truststore" in each["cls"].split(".") or each["cls"].rpartition("._api.")[0] in packages
    ]
    stacks = [each["stack"] for each in case.errors]
    if case.patched.get("socket"):  # others that block do so in any class
        stacks += [each["stack"] for each in case.blocked[:1]]
    within = any(_OF_TRUSTSTORE.search(str(spot[0]).replace("\\", "/")) for each in stacks for spot in each)
    # Of a deep recursion, not all callers are recorded.
    deep = (
        bool(made) and case.pyopenssl is None and any("Recursion" in each["class"] for each in case.errors)
    )
    if not within and not deep:
        return None
    if not calls and not case.facts.get("truststore_injected") and made:
        at = case.event_at(made[0])
        return Found(at, [f"{made[0]['cls']} was made{ending('by', at)}", error_text(case)])
    by = case.event_at(calls[-1]) if calls else case.where(case.own_line(r"inject_into_ssl"))
    return Found(by, [f"truststore.inject_into_ssl() was called{ending('by', by)}", error_text(case)])


def ssl_left_out(case: Case) -> Found | None:
    if case.patched.get("ssl") or not case.patched.get("socket") or case.pyopenssl:
        return None
    return Found(
        case.event_at(case.patching),
        [f"sockets are patched, ssl is not: {case.patch_line()}", error_text(case)],
    )


# not patched, or not enough


def not_patched(case: Case) -> Found | None:
    if not case.nothing_patched or not _serialized(case) or case.in_threads:
        return None
    held = [case.held_line(case.blocked)] if case.blocked else []
    app = case.question.target.app
    hint = f"checked was what importing {app.partition(':')[0]} makes of a process"
    hint += "; where a server patches for it, check the server's command, as in: -- gunicorn -k gevent …"
    unused = "" if case.imports_gevent or not app else "the application does not import gevent"
    evidence = ["nothing of the standard library is gevent's", unused, hint if app else "", *held]
    return Found(case.where(case.subject), evidence)


# gevent's ssl with a socket of Python 2.7, which is none of gevent's.
_MIXED = "do_handshake_on_connect should not be specified for non-blocking sockets"


def sockets(case: Case) -> Found | None:
    if case.patched.get("socket") or case.nothing_patched:
        return None
    text = error_text(case)
    if _MIXED in text:
        shown = text
    elif _serialized(case) and case.blocked:
        shown = case.held_line(case.blocked)
    else:
        return None
    return Found(case.event_at(case.patching), [f"sockets are not patched: {case.patch_line()}", shown])


_KEPT = {
    "socket": ("socket", "patch_socket"),
    "ssl": ("ssl", "patch_ssl"),
    "select": ("select", "patch_select"),
    "time": ("time", "patch_time"),
    "thread": ("thread", "patch_thread"),
}


def put_back_modules(case: Case) -> list[str]:
    """Return the modules that a call patched and that have the originals nevertheless."""
    wide = [each for each in case.seen["patches"] if each["function"] == "patch_all"]
    left_out = {key for each in wide for key, value in each["arguments"].items() if value == "False"}
    called = {each["function"] for each in case.seen["patches"]}
    return [
        key
        for key, (_, function) in _KEPT.items()
        if not case.patched.get(key, True) and ((wide and key not in left_out) or function in called)
    ]


def putting_back(case: Case, key: str) -> Spot | None:
    """Return the line that restored the originals of a module."""
    module = _KEPT[key][0]
    seen = [each for each in case.seen["replaced"] if each["name"].startswith(module + ".")]
    pattern = rf"\b{module}\.\w+\s*=[^=]|setattr\(\s*_?{module}\b|reload\(\s*{module}\b"
    return case.own_line(pattern) or (seen[0]["user"] or seen[0]["caller"] if seen else None)


def put_back(case: Case) -> Found | None:
    """Match an original that is there although a call replaced it."""
    modules = put_back_modules(case)
    if not modules or (not case.blocked and case.judgement.verdict != "error"):
        return None
    return Found(
        case.where(putting_back(case, modules[0])),
        [
            f"{modules[0]} was patched ({case.patch_line()}) and is the original again",
            case.held_line(case.blocked) if case.blocked else "",
            error_text(case) if case.judgement.verdict == "error" else "",
        ],
    )


# pyOpenSSL


def pyopenssl(case: Case) -> Found | None:
    """Match if pyOpenSSL carries the connections, and the hub is held where it waits for them."""
    if case.pyopenssl is None or not _serialized(case) or not case.held_in_poll:
        return None
    injection = case.injection
    by = f" injected{ending('by', case.event_at(injection))}" if injection else ""
    return Found(
        case.event_at(injection) if injection else case.where(case.context_made),
        [
            f"{case.pyopenssl['cls']} carries the connections {by}".rstrip(),
            "" if case.patched.get("select") else f"select is not patched: {case.patch_line()}",
            case.held_line(case.held_in_poll),
        ],
    )


def gevent_openssl(case: Case) -> Found | None:
    found = pyopenssl(case)
    if found is None or not case.facts["gevent_openssl"]:
        return None
    calls = [each for each in case.seen["injections"] if each["module"].startswith("gevent_openssl")]
    at = case.event_at(calls[-1]) if calls else found.where
    return Found(at, [f"gevent-openssl was applied{ending('by', at)}", *found.evidence])


def own_context(case: Case) -> Found | None:
    found = pyopenssl(case)
    if found is None or case.copy in case.facts["injected_copies"]:
        return None
    at = case.where(case.context_made)
    return Found(
        at, [f"a pyOpenSSL context was made{ending('by', at)}, without an injection", *found.evidence]
    )


def vendored(case: Case) -> Found | None:
    found = pyopenssl(case)
    if found is None or case.copy in ("urllib3", "", "requests.packages.urllib3"):
        return None
    return Found(found.where, [f"the copy of urllib3 is {case.copy}", *found.evidence])


_USED = re.compile(r"Context has already been used to create a Connection")


def used_context(case: Case) -> Found | None:
    """Match if pyOpenSSL refused to set a context up for its second connection."""
    errors = [each for each in case.errors if _USED.search(str(each["text"]))]
    if not errors:
        return None
    first, last = errors[0], case.observation.result["rounds"][-1]
    made = case.contexts_kept or [spot for spot in [case.own_frame(first["stack"])] if spot]
    version = case.facts["packages"].get("pyopenssl", "")
    return Found(
        case.where(made[0] if made else None),
        [
            f"{last['errors']} of {last['requests']} requests failed: {first['class']}: {first['text']}",
            f"pyOpenSSL is {version}" if version else "",
            f"contexts were made at {', '.join(map(case.where, made))}" if len(made) > 1 else "",
        ],
    )


def blocking_pyopenssl(case: Case) -> Found | None:
    if case.pyopenssl is None or not _serialized(case) or not case.held_in_pyopenssl:
        return None
    return Found(
        case.event_at(case.injection) if case.injection else case.where(case.context_made),
        [
            f"{case.pyopenssl['cls']} carries the connections, over sockets that block",
            case.patch_line(),
            case.held_line(case.held_in_pyopenssl),
        ],
    )


# the application's own


def _hub_was_held(case: Case) -> bool:
    """Return whether something held the hub: then waiting greenlets are a consequence, not the cause."""
    return case.judgement.blocked + case.judgement.busy > case.lasted / 3


def pool_place(case: Case, stack: Sequence[Spot]) -> str:
    """Return where the pool is made in which ``stack`` waits, else where it waits."""
    made = case.pool_lines(pool_made(stack))
    return case.where(made[0] if len(made) == 1 else case.own_frame(stack))


def pool_of_one(case: Case) -> Found | None:
    if _hub_was_held(case):
        return None
    parked = case.parked_in(in_pool)
    if parked is None:
        return None
    made = case.pool_lines(pool_made(parked["stack"]))
    return Found(
        pool_place(case, parked["stack"]),
        [
            f"{parked['most']} greenlets waited at once for a connection of a pool",
            f"it is one of those made at {', '.join(map(case.where, made))}" if len(made) > 1 else "",
            _at(case, parked),
            case.served_line(),
        ],
    )


def dns(case: Case) -> Found | None:
    parked = case.parked_in(in_look_up)
    if case.judgement.verdict == "error" and not case.judgement.problem:
        return None
    if case.judgement.blocked + case.judgement.busy > max(0.3, case.lasted / 3):
        return None
    if parked is None or parked["seconds"] < 0.3 * _waited(case):
        return None
    size = case.facts.get("threadpool") or 10
    return Found(
        case.where(case.own_frame(parked["stack"])),
        [
            f"{parked['most']} greenlets waited at once for the look-up of a name",
            f"gevent looks names up in {size} threads; each one without a response keeps its thread",
        ],
    )


_REAL_LOCK = (
    "It is a real lock, which gevent has not replaced: the greenlet that holds it can never run again,\n"
    "and the whole process is blocked permanently."
)
# A line that waits for others.
WAITING = re.compile(r"\bwith\b|\bacquire\b|\bwait\b|\bget\(|\bjoin\b")
_TAKES = re.compile(r"\.(get|put)\(")
_EXECUTORS = r"\bmax_workers\s*=|\b(\w*Executor|FuturesSession|ThreadPool)\("
_OPENING = (
    "They wait there while they open connections, and requests on open ones do not: so it is the first of\n"
    "each host that are slow, and those after a pause. Do not wait for anything with it held, or allow\n"
    "more of them."
)


def real_lock(case: Case) -> Found | None:
    """Match if the process stopped in a lock of threading, which was left out when gevent patched."""
    return None if case.patched.get("thread", True) else _deadlock(case, case.patch_line())


def _deadlock(case: Case, *evidence: str) -> Found | None:
    """Match if the greenlet that holds a real lock can never run again."""
    # Stopped permanently, not for a moment on a busy machine.
    stopped = case.judgement.problem and case.judgement.blocked > case.lasted / 2
    if not stopped or not case.blocked or in_network(case.blocked[0]["stack"]):
        return None
    spot = case.own_frame(case.blocked[0]["stack"])
    if spot is None or not WAITING.search(case.text(spot)):
        return None
    seen = [case.judgement.problem, case.held_line(case.blocked), *evidence]
    return Found(case.where(spot), seen, explanation=_REAL_LOCK)


def own_lock(case: Case) -> Found | None:
    if found := _deadlock(case):
        return found
    if not _serialized(case) and not case.judgement.problem:
        return None
    if _hub_was_held(case):
        return None
    opening = case.judgement.queue if case.judgement.delay == 0 else None
    parked = case.parked_in(in_turn if opening is None else opening.stack.__eq__)
    # A lock that is polled, with a sleep in between, counts as well; one that sleeps alone polls none.
    polls = case.parked_in(in_sleep) if parked is None else None
    parked = polls if polls and polls["most"] > 1 else parked
    if parked is None:
        return None
    spot = case.user_frame(parked["stack"])
    if spot is None and (case.in_threads or in_future(parked["stack"])):
        spot = case.own_line(_EXECUTORS)
    spot = spot or case.own_frame(parked["stack"])
    for_them = " in a gevent.threadpool.ThreadPool" if case.in_threads else ""
    summary = _kind_of_turn(case, parked["stack"])
    many = parked["most"]
    who = f"{many} greenlets waited for each other" if many > 1 else "one greenlet waited"
    return Found(
        case.where(spot),
        [
            f"{who}{for_them}{case.at(spot)}",
            _at(case, parked),
            case.served_line(),
        ],
        summary,
        _several(case) if opening is None else _OPENING,
    )


def _several(case: Case) -> str:
    """Return the explanation where the server saw several at once, most of the time; "" otherwise."""
    served = case.judgement.served
    if served is None or served.peak < 2 or served.chain > 1 or served.mean < 0.75 * served.peak:
        return ""
    return (
        f"What they wait for lets {served.peak} of them through at once. Let go of it before the request,\n"
        "or allow more of them."
    )


def _kind_of_turn(case: Case, stack: Sequence[Spot]) -> str:
    """Return what the requests wait in, as a summary; "" for a lock, or anything else that is a line."""
    if case.in_threads:
        return "the requests wait for each other in a pool of threads"
    if in_future(stack):
        return "the requests wait for each other in an executor that has too few workers"
    # A queue that is compiled has no frames.
    if in_queue(stack) or (stack and _TAKES.search(case.text(stack[0]))):
        return "the requests wait for each other in a queue of the application"
    return ""


def blocking(case: Case) -> Found | None:
    judgement = case.judgement
    if not case.blocked or judgement.blocked < max(0.3, case.lasted / 3):
        return None
    if judgement.busy > judgement.blocked:
        return None  # on a busy machine what computes also seems to wait, at some other line
    spot = case.own_frame(case.blocked[0]["stack"])
    text = f"{case.where(spot)}  {case.text(spot)[:80]}" if spot else ""
    return Found(case.where(spot), [case.held_line(case.blocked), f"called by {text}"])


def computing(case: Case) -> Found | None:
    found = case.judgement
    # So much computing that no request came back at all is computing, too.
    starved = found.verdict == "error" and not found.error and found.busy > case.lasted / 2
    if not case.busy or not (found.verdict == "serialized" or starved):
        return None
    if found.busy < max(found.blocked, found.wall / 3):
        return None
    spot = case.own_frame(case.busy[0]["stack"])
    return Found(case.where(spot), [case.held_line(case.busy), "it used the CPU all that time"])


def untrusted(case: Case) -> Found | None:
    text = error_text(case)
    if not re.search(
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|unknown ca", text, re.IGNORECASE
    ):
        return None
    spot = case.own_frame(case.errors[0]["stack"]) if case.errors else None
    return Found(case.where(spot), [text])


def unexplained(case: Case) -> Found | None:
    held = [case.held_line(case.held)] if case.held else []
    parked = [_at(case, case.parked[0])] if case.parked else []
    text = error_text(case) or case.judgement.problem
    spot = None
    failed = case.judgement.verdict == "error" and bool(error_text(case))
    if case.errors and (failed or not case.held):
        spot = case.own_frame(case.errors[0]["stack"])
    elif case.held:
        spot = case.own_frame(case.held[0]["stack"])
    elif case.parked:
        spot = case.own_frame(case.parked[0]["stack"])
    return Found(case.where(spot), [text, *held, *parked])


def _at(case: Case, parked: dict[str, list[tuple[str, int, str]]]) -> str:
    frames = " < ".join(filter(None, (case.where(spot) for spot in parked["stack"][:4])))
    return f"waiting at {frames}" if frames else ""


def _waited(case: Case) -> float:
    return float(sum(each["seconds"] for each in case.parked)) or 1.0
