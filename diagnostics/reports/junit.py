"""Write an outcome as JUnit XML, as Jenkins, GitLab and the actions of GitHub read it: one test case."""

from __future__ import annotations

import datetime
import io
from xml.etree import ElementTree

from rich.console import Console

from diagnostics.report import headline, show
from diagnostics.reports.outcome import Outcome, shown

__all__ = ["junit"]


def junit(outcome: Outcome, now: datetime.datetime, fixed: bool) -> bytes:
    """Return the document. ``now``: when the check ended; ``fixed``: remedies were to be measured.

    A verdict that is not the expected one is a failure; HTTPS that does not work, or a probe that could not
    be run, is an error.
    """
    found = outcome.found
    failed = not outcome.passed and found is not None and found.verdict != "error"
    counts = {
        "tests": "1",
        "failures": str(int(failed)),
        "errors": str(int(not outcome.passed and not failed)),
        "time": f"{outcome.seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "diagnostics", **counts})
    began = (now - datetime.timedelta(seconds=outcome.seconds)).replace(tzinfo=None)
    stamp = {"skipped": "0", "timestamp": began.isoformat(timespec="seconds")}
    suite = ElementTree.SubElement(root, "testsuite", {"name": "diagnostics", **counts, **stamp})
    name = f"HTTPS is {outcome.expected}: {outcome.question.target.shown}"
    named = {"classname": "diagnostics.check", "name": shown(name), "time": counts["time"]}
    case = ElementTree.SubElement(suite, "testcase", named)
    if found is None:
        title, kind, text = outcome.error, "not-probed", outcome.error
    else:
        title, kind, text = headline(found), found.verdict, _text(outcome, fixed)
    if cause := found.causes[0] if found and found.causes else None:
        kind = cause.code
        title = f"{title}: {cause.summary}{f' at {cause.where}' if cause.where else ''}"
        excerpt = found.excerpt(cause.where) if found else None
        if excerpt is not None and excerpt.own and not excerpt.file.startswith("<"):
            # Not at the test case: there the schema of Jenkins' xUnit plugin has neither a file nor a line.
            suite.set("file", shown(cause.where.rpartition(":")[0]))
    if outcome.passed:
        ElementTree.SubElement(case, "system-out").text = shown(text)
    else:
        tag = "failure" if failed else "error"
        ElementTree.SubElement(case, tag, {"message": shown(title), "type": shown(kind)}).text = shown(text)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _text(outcome: Outcome, fixed: bool) -> str:
    """Return the diagnosis as the command prints it."""
    output = io.StringIO()
    assert outcome.found is not None
    console = Console(file=output, color_system=None, soft_wrap=True)
    show(outcome.question, outcome.found, console, fixed, profile=False)
    return output.getvalue()
