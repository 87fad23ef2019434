"""Remedies: what each is, the line of code to write, and where; proved by measuring again.

Each is applied in a fresh process of the same set-up (``agent/https_agent/remedies.py``), at the moment
at which the line would run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from diagnostics.case import Case
from diagnostics.errors import ProbeError
from diagnostics.model import Observation, Question, Remedy
from diagnostics.verdict import judge

__all__ = ["KNOWN", "measure_again"]


class Known(NamedTuple):
    """``where``: ``first`` line of the application, ``call``: at the call that is the cause, ``before`` the
    first request, ``process``: outside of the program, ``site``: in front of all of it."""

    summary: str
    line: str
    where: str


KNOWN = {
    "patch-all-first": Known(
        "patch everything, before anything else is imported",
        "from gevent import monkey; monkey.patch_all()",
        "first",
    ),
    "patch-before-everything": Known(
        "patch everything before sitecustomize imports anything",
        "from gevent import monkey; monkey.patch_all()",
        "site",
    ),
    "patch-select": Known(
        "patch select, too, before the first request", "gevent.monkey.patch_select()", "before"
    ),
    "patch-again": Known(
        "do not put the originals back; or patch once more, before the first request",
        "gevent.monkey.patch_all()",
        "call",
    ),
    "extract-pyopenssl": Known(
        "take pyOpenSSL out of urllib3, before the first request",
        "{copy}.contrib.pyopenssl.extract_from_urllib3()",
        "before",
    ),
    "no-truststore": Known("leave truststore's injection out", "truststore.inject_into_ssl()", "call"),
    "extract-truststore": Known(
        "take truststore out of ssl, before the first request", "truststore.extract_from_ssl()", "before"
    ),
    "raise-descriptors": Known("allow more open files", "ulimit -n 65536", "process"),
    "more-resolver-threads": Known(
        "give gevent's resolver more threads",
        "gevent.get_hub().threadpool.maxsize = 200",
        "before",
    ),
    "unblock-pool": Known("let the pool open as many connections as it needs", "pool_block=False", "call"),
}


def measure_again(
    question: Question,
    case: Case,
    cause_at: str,
    codes: Iterable[str],
    again: Callable[[str], Observation],
    said: Callable[[str], None],
) -> tuple[list[Remedy], list[Remedy]]:
    """Try each of ``codes`` with ``again``; those that worked, best first, and those that did not."""
    worked: list[Remedy] = []
    failed: list[Remedy] = []
    for code in codes:
        known = KNOWN[code]
        said(f"measuring again with: {known.summary}")
        where = {
            "first": f"the first line of {_first(question, case)}",
            "call": f"at {cause_at}",
            "before": "after the imports, before the first request",
            "process": "where the process is started",
            "site": "the first line of sitecustomize.py",
        }[known.where]
        if code in ("no-truststore",):
            where = f"remove it at {cause_at}"
        try:
            seen = again(code)
        except ProbeError:
            wall, verdict = None, "error"
        else:
            judgement = judge(question, seen)
            wall, verdict = round(judgement.wall, 3), judgement.verdict
        line = known.line.format(copy=case.copy or "urllib3")
        remedy = Remedy(code, known.summary, wall if verdict != "error" else None, verdict, line, where)
        (worked if verdict == "concurrent" else failed).append(remedy)
    return worked, failed


def _first(question: Question, case: Case) -> str:
    """The file that the application begins with."""
    target = question.target
    if target.app:
        return target.app.partition(":")[0].replace(".", "/") + ".py"
    if target.command:
        scripts = [word for word in target.command if word.endswith(".py")]
        return scripts[0] if scripts else "the module that the command loads"
    return f"the program, before import {target.style}"
