"""Run a whole examination: observe, judge, explain, and measure the remedies."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from diagnostics import both_ways, handlers, stuck
from diagnostics.causes import explain
from diagnostics.errors import ProbeError
from diagnostics.evidence import Case
from diagnostics.excerpts import excerpts_of
from diagnostics.launch import host_of, observe
from diagnostics.limits import queued_at_opening
from diagnostics.model import Diagnosis, Observation, Question, Remedy, Start
from diagnostics.origin import Origin
from diagnostics.output_errors import error_in
from diagnostics.provoked import no_verdict
from diagnostics.redaction import redact
from diagnostics.remedy import is_known, measure_again
from diagnostics.startup import with_startup
from diagnostics.timeline import timeline_of
from diagnostics.verdict import Judgement, judge, least_slope
from diagnostics.waits import asleep
from downloader.process import isolation

__all__ = ["diagnose", "examine"]

_CONTROL_PATIENCE = 60.0
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def examine(
    question: Question, fix: bool = False, progress: Callable[[str], None] = lambda text: None
) -> Diagnosis:
    """Return the diagnosis for ``question``; with ``fix``, measure the remedies, too.

    ``progress`` is called with a text for each step. Raises UsageError when the target is not valid,
    ProbeError when it could not be probed.
    """
    with _origin(question) as origin:
        progress(f"setting up {question.target.shown}")
        seen = both_ways.settled(question, observe(question, origin))
        chosen = seen.argv if question.target.command else None
        if question.target.command:
            seen = with_startup(seen)
        judgement = judge(question, seen)
        if question.url and judgement.verdict == "serialized" and asleep(seen.result) is not None:
            progress("measuring the same with the built-in server")
            seen = replace(seen, paced=_is_paced(question, chosen, seen.start))
        if question.url and judgement.verdict != "concurrent" and not seen.paced:
            progress("measuring the same from threads of a clean process")
            seen = replace(seen, control=_control(question, judgement))
        return diagnose(
            question,
            seen,
            (lambda remedy: _observed_with(question, origin, remedy, chosen, seen.start)) if fix else None,
            progress,
        )


def _observed_with(
    question: Question,
    origin: Origin | None,
    remedy: dict[str, Any],
    chosen: list[str] | None,
    start: Start | None,
) -> Observation:
    """Return what is observed with ``remedy``; one that changes the command knows the process by others."""
    if "argv" not in remedy:
        return both_ways.settled(question, observe(question, origin, [remedy], chosen, start))
    target = replace(question.target, command=tuple(remedy["argv"]))
    question = replace(question, target=target)
    return both_ways.settled(question, observe(question, origin, [remedy], remedy["chosen"]))


def diagnose(
    question: Question,
    seen: Observation,
    again: Callable[[dict[str, Any]], Observation] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Diagnosis:
    """Return the diagnosis that follows from ``seen``; ``again`` observes the same set-up with a remedy.

    Raises ProbeError where what was observed says nothing about HTTPS.
    """
    judgement = judge(question, seen)
    case = Case(question, seen, judgement)
    explained = explain(case)
    code = explained[0][0].code if explained else ""
    if why := no_verdict(case, code) or both_ways.unlike(case, code) or handlers.not_called(case):
        raise ProbeError(f"{question.target.shown}: {why}")
    worked: list[Remedy] = []
    failed: list[Remedy] = []
    if again is not None and explained:
        worked, failed = measure_again(case, explained[0][1], again, progress)
    many = question.requests
    causes = [cause for cause, _ in explained]
    notes = []
    if seen.start is not None:
        why = redact(seen.start.why)
        empty = "; it had no standard input: that was a pipe or the like, which cannot be read again"
        empty = empty if seen.start.input == "" else ""
        notes = [
            f"{seen.start.shown} was started again by itself, with the diagnostics, since {why}{empty}"
        ]
    notes += [
        f"part of the recording is missing, please report: {each}" for each in seen.seen.get("faults", ())
    ]
    notes += seen.notes
    if shorter := seen.result.get("delay"):
        notes.append(
            f"measured at a delay of {shorter:g} s: at {seen.result['impatient']:g} s its requests time out"
        )
    if unlike := seen.result.get("unlike"):
        name, at = seen.result.get("name"), case.at(unlike["at"])
        what = "its code does" if unlike["copied"] else "the program fetches"
        notes.append(f"measured was {name}: what {what}{at} was not; name --app for that")
    if seen.result.get("unseen"):
        loops = seen.result.get("off_sockets")
        but = f" but those of an event loop{case.at(loops)}" if loops else ""
        notes.append(
            f"the program has tried no HTTPS connection{but}: measured was {seen.result.get('name')};"
            " name a fetch of it with --app"
        )
    if importing := seen.result.get("importing"):
        facts = {**importing["facts"], "started": seen.facts["started"]}
        at = stuck.place({**importing, "facts": facts}) or "no line of Python"
        notes.append(
            f"probed while it was still importing {importing['module']}: that is at {at}, and what comes"
            " after it is not known"
        )
    app, name = question.target.app, seen.result.get("name")
    if ":" in app and name != app:
        notes.append(
            f"{app} takes more than a URL, so it is an application that was only imported: measured was"
            f" {name}; name a fetch of one argument with --app"
        )
    if not question.url and (proxy := next(filter(os.environ.get, _PROXIES), "")):
        notes.append(f"{proxy} was left out, and what that proxy does is not measured; give --url for that")
    verdict = judgement.verdict
    queued = queued_at_opening(case)
    notes += filter(None, [both_ways.shown(seen, verdict), handlers.shown(seen, verdict), queued])
    held = [_shown(case, each) for each in case.held[:5]]
    return Diagnosis(
        verdict=judgement.verdict,
        requests=many,
        delay_s=round(judgement.delay, 3),
        wall_s=round(judgement.wall, 3),
        concurrency=round(judgement.concurrency, 2),
        socket_class=case.socket_class,
        causes=causes,
        remedies=worked,
        tried=failed,
        facts=_facts(case),
        error=judgement.error if judgement.verdict == "error" else "",
        held=held,
        gap_s=round(seen.result["gap"], 3),
        fixable=any(is_known(case, codes) for _, codes in explained),
        timeline=timeline_of(question, seen, judgement.wall),
        excerpts=excerpts_of([each.where for each in causes], case.held[:5], seen.facts),
        notes=notes,
    )


@contextlib.contextmanager
def _origin(question: Question) -> Iterator[Origin | None]:
    if question.url:
        yield None
    else:
        with Origin() as origin:
            yield origin


def _facts(case: Case) -> dict[str, Any]:
    facts = case.facts
    names = ("python", "implementation", "executable", "packages", "patched", "pyopenssl_injected")
    more = ("injected_copies", "truststore_injected", "gevent", "openssl")
    return {
        **{name: facts[name] for name in (*names, *more)},
        "ssl_imported_before_patch_by": case.ssl_before_patch or None,
        "patched_by": [
            f"{case.event_at(each, text=False)} {case.shown_call(each)}" for each in case.seen["patches"]
        ],
    }


def _shown(case: Case, held: dict[str, Any]) -> dict[str, Any]:
    return {
        "seconds": round(held["seconds"], 3),
        "cpu_s": round(held["cpu"], 3),
        "frames": [f"{case.where(spot)} {spot[2]}" for spot in held["stack"][:15]],
    }


def _is_paced(question: Question, chosen: list[str] | None, start: Start | None) -> bool:
    """Return True where the built-in server, at two delays, shows that the program limits its own rate.

    At the single delay of another server, a rate cannot be told from a lock that is retried after a sleep.
    """
    ours = replace(question, url="", cacert="")
    try:
        with Origin() as origin:
            found = judge(ours, observe(ours, origin, chosen=chosen, start=start))
    except ProbeError:
        return False
    return found.verdict == "concurrent" and found.limit == "rate-limit"


def _control(question: Question, judgement: Judgement) -> float | None:
    """Return the seconds that the same requests take from plain threads of an unpatched process.

    Return None if they are not serialized there. Raises ProbeError when they fail there, too.
    """
    arguments = {
        "url": question.url,
        "requests": question.requests,
        "cacert": question.cacert,
        "insecure": question.insecure,
    }
    argv, env = isolation.child("diagnostics.control:main", json.dumps(arguments))
    try:
        done = subprocess.run(argv, capture_output=True, env=env, timeout=_CONTROL_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise ProbeError(f"{host_of(question.url)}: no response within {_CONTROL_PATIENCE:g} s") from None
    if done.returncode:
        raise ProbeError(f"the control failed: {error_in(done.stderr.decode(errors='replace'))}")
    found = json.loads(done.stdout)
    if found["error"]:
        hint = ""
        if "CERTIFICATE_VERIFY_FAILED" in found["error"]:
            hint = "; name its CA with --cacert, or use --insecure"
        raise ProbeError(f"{host_of(question.url)} cannot be fetched: {redact(found['error'])}{hint}")
    if judgement.verdict != "serialized":
        return None
    single = max(found["single"], 1e-3)
    return float(found["wall"]) if found["wall"] / single >= least_slope(question.requests) else None
