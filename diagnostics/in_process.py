"""Inspect the calling process, or measure in it."""

from __future__ import annotations

import os
from dataclasses import replace

from diagnostics.agent.https_agent import facts as agent_facts
from diagnostics.agent.https_agent import fetchers, probe
from diagnostics.agent.https_agent.https_inspection import Inspection, inspect
from diagnostics.agent.https_agent.recorder import record
from diagnostics.errors import ProbeError
from diagnostics.import_traces import reconstruct
from diagnostics.model import Diagnosis, Observation, Question, Target

__all__ = ["Inspection", "check", "inspect"]


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
        return diagnose(question, replace(seen, served=origin.counts(), refused=origin.refused()))


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
