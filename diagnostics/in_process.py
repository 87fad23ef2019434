"""Inspect the calling process: facts and static causes, or a measurement in it."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from diagnostics import source_places
from diagnostics.agent.https_agent import facts as agent_facts
from diagnostics.agent.https_agent import fetchers, frames, keepers, probe
from diagnostics.agent.https_agent.recorder import record
from diagnostics.errors import ProbeError
from diagnostics.import_traces import reconstruct
from diagnostics.model import Cause, Diagnosis, Observation, Question, Target

__all__ = ["Inspection", "check", "inspect"]

_CLIENTS = ("requests", "urllib3", "botocore")  # packages whose waiting gevent makes concurrent


class Inspection:
    """The ``facts`` of this process, and the ``causes`` that will serialize or break HTTPS in it."""

    def __init__(self, facts: dict[str, Any], causes: list[Cause]) -> None:
        self.facts = facts
        self.causes = causes

    def __repr__(self) -> str:
        return f"Inspection({', '.join(f'{each.code} {each.where}'.strip() for each in self.causes)})"


def inspect() -> Inspection:
    """Return facts and static causes of this process, without importing, sending or changing anything.

    This takes milliseconds. A static cause is a state that is known to serialize or break HTTPS under
    gevent, whether or not a request is ever made. A process that does not use gevent has none.
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
    elif patched.get("ssl") and (keeper := _keeper()):
        code = "context-before-patching" if keeper["kind"] == "context" else "patched-too-late"
        name = f"{keeper['module']}.{keeper['name']}"
        text = f"{name} is what ssl had before gevent patched it"
        add(code, "ssl was in use before gevent patched it", text, _keeping(keeper, facts))
    return Inspection(facts, causes)


def _caller(events: list[dict[str, Any]]) -> str:
    return next((f"{event['caller'][0]}:{event['caller'][1]}" for event in events if event["caller"]), "")


def _patcher(facts: dict[str, Any]) -> str:
    return _caller(reconstruct(facts)["patches"])


def _keeper() -> dict[str, Any] | None:
    """Return what keeps the unpatched SSLContext and uses it where gevent should make it concurrent.

    A module that merely has a name for the class (aiohttp does) does not count, nor does a server's
    context.
    """
    found = [each for each in keepers.found(record.importers) if each["client"]]
    for each in found:
        if each["kind"] == "class" and each["module"].endswith(".util.ssl_"):
            return each
    for each in found:
        own = frames.kind_of_file(each["file"]) == "user"
        if each["kind"] == "context" and (own or each["module"].partition(".")[0] in _CLIENTS):
            return each
    return None


def _keeping(keeper: dict[str, Any], facts: dict[str, Any]) -> str:
    """Return the line that led to ``keeper``."""
    if keeper["kind"] == "context":
        pattern = rf"^\s*{re.escape(keeper['name'])}\b.*="
        spot: Any = source_places.line_of([keeper["file"]], pattern)
    else:
        event = reconstruct(facts)["imports"].get("ssl", {})
        spot = keeper["user"] or keeper["caller"] or event.get("user")
    return f"{spot[0]}:{spot[1]}" if spot else str(keeper["module"])


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
    """Measure in the calling process, or in a new one for ``app`` or ``style``; return the ``Diagnosis``.

    The calling process must be under gevent, and the call must come from a greenlet or the main thread; N
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
        result = probe.Probe(fetch, {**spec, "name": name}).run(lambda late: None, lambda: None)
    except fetchers.Unusable as error:
        raise ProbeError(str(error)) from None
    seen = record.seen() if record.serial else reconstruct(found)
    return Observation(result, seen, found)
