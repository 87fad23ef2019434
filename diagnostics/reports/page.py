"""Write an outcome as one HTML page that needs nothing else: no script, no font, no image, no other host.

The page is a tree of elements, so that whatever text is in it is escaped where the tree is written.
"""

from __future__ import annotations

import datetime
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from diagnostics.model import Cause, Diagnosis, Excerpt, Remedy
from diagnostics.report import headline
from diagnostics.reports.chart import chart
from diagnostics.reports.elements import element, inside
from diagnostics.reports.outcome import Outcome
from diagnostics.reports.style import STYLE

__all__ = ["page"]

# Whatever text got into the page, a browser would load and execute nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_WORDS = {"concurrent": "OK", "serialized": "FAIL", "error": "FAIL"}
_SHOWN_HOLD = 0.05  # seconds


def page(outcome: Outcome, now: datetime.datetime, fixed: bool) -> bytes:
    """Return the page, in UTF-8. ``now``: when the check ended; ``fixed``: remedies were to be measured."""
    found = outcome.found
    title = headline(found) if found else f"HTTPS could not be checked: {outcome.error}"
    document = element("html", lang="en")
    head = inside(document, "head")
    inside(head, "meta", charset="utf-8")
    inside(head, "meta", http_equiv="Content-Security-Policy", content=_POLICY)
    inside(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    inside(head, "meta", name="color-scheme", content="light dark")
    inside(head, "title", f"{title} · {outcome.question.target.shown}")
    inside(head, "style").text = STYLE
    body = inside(inside(document, "body"), "main")
    _top(body, outcome, title, now)
    if found:
        if found.timeline:
            section = _section(body, "Timeline")
            section.extend(chart(found.timeline))
        _causes(body, found)
        _remedies(body, found, fixed)
        _held(body, found)
        _facts(body, found)
    text = ElementTree.tostring(document, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n".encode()


def _section(body: Element, title: str) -> Element:
    section = inside(body, "section")
    inside(section, "h2", title)
    return section


def _top(body: Element, outcome: Outcome, title: str, now: datetime.datetime) -> None:
    found = outcome.found
    header = inside(body, "header")
    verdict = found.verdict if found else "error"
    heading = inside(header, "h1")
    inside(heading, "span", _WORDS[verdict] if found else "NOT RUN", class_=f"badge {verdict}")
    inside(heading, "span", f" {title}")
    told = inside(header, "p", class_="quiet")
    inside(told, "code", outcome.question.target.shown)
    if outcome.question.url:
        inside(told, "span", " at ")
        inside(told, "code", outcome.question.url)
    python = f" · Python {found.facts['python']}" if found else ""
    inside(told, "span", f"{python} · {now.strftime('%Y-%m-%d %H:%M')} UTC · python -m diagnostics")
    if found and outcome.expected != "concurrent":
        inside(header, "p", f"Expected: {outcome.expected}.")


def _causes(body: Element, found: Diagnosis) -> None:
    if not found.causes:
        return
    section = _section(body, "What limits it" if found.verdict == "concurrent" else "Cause")
    for cause in found.causes:
        _cause(section, cause, found.excerpt(cause.where))


def _cause(section: Element, cause: Cause, excerpt: Excerpt | None) -> None:
    block = inside(section, "article")
    inside(block, "h3", cause.summary)
    at = inside(block, "p", class_="quiet")
    inside(at, "code", cause.code)
    if cause.where:
        inside(at, "span", " at ")
        inside(at, "code", cause.where)
    if excerpt:
        block.append(_code(excerpt))
    if cause.evidence:
        evidence = inside(block, "ul")
        for line in cause.evidence:
            inside(evidence, "li", line)
    if cause.explanation.strip():
        inside(block, "p", " ".join(cause.explanation.split()))


def _code(excerpt: Excerpt) -> Element:
    block = element("div", class_="code")
    for number, text in enumerate(excerpt.lines, excerpt.first):
        here = number == excerpt.line
        line = inside(block, "div", class_="line here" if here else "line")
        inside(line, "span", f"{'→ ' if here else ''}{number}", class_="number")
        inside(line, "code", text or " ")
    return block


def _held(body: Element, found: Diagnosis) -> None:
    places: dict[str, list[dict[str, Any]]] = {}
    for each in found.held:
        places.setdefault(each["frames"][0] if each["frames"] else "", []).append(each)
    held = [each for each in places.values() if _sum(each, "seconds") >= _SHOWN_HOLD]
    if not held or found.verdict == "concurrent":
        return
    section = _section(body, "What held the hub")
    for group in held:
        block = inside(section, "article")
        text = f"{_sum(group, 'seconds'):.2f} s, {_sum(group, 'cpu_s'):.2f} s of it computing"
        inside(block, "h3", text)
        frames: list[str] = group[0]["frames"]
        excerpt = found.excerpt(frames[0].rpartition(" ")[0]) if frames else None
        if excerpt and all(cause.where != excerpt.where for cause in found.causes):
            block.append(_code(excerpt))
        stack = inside(block, "ol", class_="stack")
        for frame in frames:
            inside(inside(stack, "li"), "code", frame)


def _sum(held: list[dict[str, Any]], key: str) -> float:
    return sum(float(each[key]) for each in held)


def _remedies(body: Element, found: Diagnosis, fixed: bool) -> None:
    if found.verdict == "concurrent":
        return
    if not (found.remedies or found.tried):
        if found.causes:
            text = "No remedy is known that could be tried." if fixed else ""
            text = text or ("The same command with --fix measures the remedies." if found.fixable else "")
            if text:
                inside(_section(body, "Remedies"), "p", text)
        return
    section = _section(body, "Remedies, each measured in a new process")
    walls = [each.wall_s or 0.0 for each in (*found.remedies, *found.tried)]
    scale = max([found.wall_s, found.delay_s, *walls]) or 1.0
    rows = inside(section, "div", class_="bars")
    before = found.wall_s if found.verdict == "serialized" else None
    why = "" if before is not None else found.error
    _bar(rows, "Before", "", before, scale, "before", why)
    for number, remedy in enumerate(found.remedies, 1):
        _remedy(rows, f"{number}. {remedy.summary}", remedy, scale, "after")
    for remedy in found.tried:
        helps = "Does not help" if remedy.was_tried else "Could not be tried"
        _remedy(rows, f"{helps}: {remedy.summary}", remedy, scale, "before")
    each = f"waits {found.delay_s:g} s" if found.delay_s else "opens a connection"
    text = f"{found.requests} requests at once, each of which {each}."
    inside(section, "p", text, class_="quiet")


def _remedy(rows: Element, title: str, remedy: Remedy, scale: float, kind: str) -> None:
    row = _bar(rows, title, remedy.line, remedy.wall_s, scale, kind, remedy.why)
    inside(row, "p", remedy.where, class_="quiet place")


def _bar(
    rows: Element, title: str, line: str, seconds: float | None, scale: float, kind: str, why: str
) -> Element:
    row = inside(rows, "div", class_="remedy")
    inside(row, "h3", title)
    if line:
        inside(row, "code", line, class_="whole")
    bar = inside(row, "div", class_="bar")
    told = f"{seconds:.2f} s" if seconds is not None else "no result"
    if seconds is not None:
        share = f"{min(100.0, 100 * seconds / scale):.2f}%"
        drawn = inside(bar, "svg", width="100%", height="16", role="img", aria_label=told)
        inside(drawn, "rect", class_="room", width="100%", height="16")
        inside(drawn, "rect", class_=kind, width=share, height="16")
    inside(bar, "span", f"{told}{', ' + why if why else ''}", class_="seconds")
    return row


def _facts(body: Element, found: Diagnosis) -> None:
    facts = found.facts
    patched = [name for name, done in sorted(facts["patched"].items()) if done]
    originals = [name for name, done in sorted(facts["patched"].items()) if not done]
    packages = [f"{name} {version}" for name, version in sorted(facts["packages"].items()) if version]
    rows = {
        "Interpreter": f"{facts['implementation']} {facts['python']}, {facts['executable']}",
        "Packages": ", ".join(packages),
        "TLS socket": found.socket_class,
        "Patched by gevent": ", ".join(patched) or "nothing",
        "Not patched": ", ".join(originals),
        "Patching calls": "; ".join(facts["patched_by"]),
        "ssl imported before patching by": facts["ssl_imported_before_patch_by"] or "",
        "pyOpenSSL in urllib3": "yes" if facts["pyopenssl_injected"] else "no",
        "Longest time without the hub": f"{found.gap_s:.2f} s",
    }
    listed = inside(_section(body, "The process"), "dl")
    for name, value in rows.items():
        if value:
            inside(listed, "dt", name)
            inside(listed, "dd", str(value))
