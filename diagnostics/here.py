"""The process that calls: facts and static causes, or a measurement in it."""

from __future__ import annotations

import os
import sys
from typing import Any

from diagnostics.agent.https_agent import facts as agent_facts
from diagnostics.agent.https_agent import fetchers, probe
from diagnostics.agent.https_agent.recorder import record
from diagnostics.errors import ProbeError
from diagnostics.model import Cause, Diagnosis, Observation, Question, Target
from diagnostics.traces import reconstruct

__all__ = ["Inspection", "check", "inspect"]


class Inspection:
    """``facts`` of this process, and the ``causes`` that will make HTTPS serial or break it."""

    def __init__(self, facts: dict[str, Any], causes: list[Cause]) -> None:
        self.facts = facts
        self.causes = causes

    def __repr__(self) -> str:
        return f"Inspection({', '.join(f'{each.code} {each.where}'.strip() for each in self.causes)})"


def inspect() -> Inspection:
    """Facts and static causes of this process: nothing is imported, sent or changed; milliseconds.

    A static cause is a state that is known to serialize or break HTTPS under gevent, whether or not a
    request is ever made. A process that does not use gevent has none.
    """
    facts = agent_facts.collect()
    patched, copies = facts["patched"], facts["injected_copies"]
    causes: list[Cause] = []

    def add(code: str, summary: str, evidence: str, where: str = "") -> None:
        causes.append(Cause(code, summary, where, [evidence]))

    if "gevent" not in sys.modules:
        return Inspection(facts, causes)
    untouched = not any(patched.get(name) for name in ("socket", "ssl", "select", "time"))
    if untouched:
        add("not-patched", "gevent has patched nothing", "socket, ssl, select and time are the originals")
        return Inspection(facts, causes)
    if copies and not patched.get("select", True):
        text = f"pyOpenSSL is in {', '.join(copies)}, and select is not patched"
        code = "gevent-openssl-python3" if facts["gevent_openssl"] else "pyopenssl-unpatched-select"
        if not any(copy in ("urllib3", "requests.packages.urllib3") for copy in copies):
            code = "pyopenssl-vendored-copy"
        add(code, text, text, _caller(reconstruct(facts)["injections"]))
    if copies and not patched.get("socket", True):
        add(
            "pyopenssl-unpatched-sockets",
            "pyOpenSSL reads from sockets that block",
            "socket is the original",
        )
    if not patched.get("ssl", True) and patched.get("socket") and not copies:
        add(
            "ssl-unpatched",
            "sockets are patched, ssl is not",
            "ssl.SSLContext is the original",
            _patcher(facts),
        )
    if not patched.get("socket", True) and not copies:
        add(
            "sockets-unpatched", "sockets are not patched", "socket.socket is the original", _patcher(facts)
        )
    if facts["truststore_injected"]:
        add(
            "truststore",
            "truststore's SSLContext does not work with gevent's",
            "ssl.SSLContext is truststore's",
        )
    elif patched.get("ssl") and (holder := _stale()):
        name, what = holder
        code = "context-before-patching" if what == "instance" else "patched-too-late"
        add(code, "ssl was in use before gevent patched it", f"{name} keeps the original SSLContext", name)
    return Inspection(facts, causes)


def _caller(events: list[dict[str, Any]]) -> str:
    return next((f"{event['caller'][0]}:{event['caller'][1]}" for event in events if event["caller"]), "")


def _patcher(facts: dict[str, Any]) -> str:
    return _caller(reconstruct(facts)["patches"])


def _stale() -> tuple[str, str] | None:
    """A module that keeps the SSLContext of before patching, and whether as class or as instance."""
    ssl, monkey = sys.modules["ssl"], sys.modules.get("gevent.monkey")
    if monkey is None:
        return None
    original = monkey.saved.get("ssl", {}).get("SSLContext")
    current = getattr(ssl, "SSLContext", None)
    if original is None or current is None or original is current:
        return None
    for name, module in list(sys.modules.items()):
        if module is None or name in ("ssl", "_ssl") or name.startswith(("gevent", "diagnostics")):
            continue
        for value in list(getattr(module, "__dict__", {}).values()):
            if value is original:
                return name, "class"
            if isinstance(value, original) and not isinstance(value, current):
                return name, "instance"
    return None


def check(
    app: str = "",
    style: str = "",
    *,
    python: str = "",
    requests: int = 10,
    delay: float = 0.2,
    url: str = "",
    cacert: str = "",
    insecure: bool = False,
    fix: bool = False,
) -> Diagnosis:
    """Measure: the process that calls, or a fresh one for ``app`` or ``style``; see ``Diagnosis``.

    In the process that calls, it must be under gevent, and call from a greenlet or the main thread; N
    greenlets fetch with requests (or urllib3, whichever is imported). Raises UsageError, ProbeError.
    """
    from diagnostics.examine import diagnose, examine
    from diagnostics.origin import Origin

    target = Target(app=app, style=style, python=python)
    question = Question(target, requests, delay, url, cacert, insecure)
    if app or style:
        return examine(question, fix)
    if url:
        return diagnose(question, _measure(question, url, cacert or None, True))
    with Origin() as origin:
        seen = _measure(question, origin.url, origin.ca, False)
        return diagnose(question, Observation(seen.result, seen.seen, seen.facts, origin.counts()))


def _measure(question: Question, url: str, ca: str | None, fixed: bool) -> Observation:
    verify = False if question.insecure else ca
    options = {"verify": verify, "limit": question.limit}
    spec = {
        "run": os.urandom(4).hex(),
        "url": url,
        "fixed": fixed,
        "requests": question.requests,
        "delay": question.delay,
        "limit": question.limit,
    }
    found = agent_facts.collect()
    try:
        fetch, name = fetchers.general(options)
        result = probe.Probe(fetch, {**spec, "name": name}).run(lambda late: None)
    except fetchers.Unusable as error:
        raise ProbeError(str(error)) from None
    seen = record.seen() if record.serial else reconstruct(found)
    return Observation(result, seen, found)
