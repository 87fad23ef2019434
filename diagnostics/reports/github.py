"""Write workflow commands of GitHub Actions: an annotation at the line of each cause.

Their form: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping

from diagnostics.model import Cause, Diagnosis
from diagnostics.report import headline
from diagnostics.reports.outcome import Outcome, shown
from diagnostics.source_places import here

__all__ = ["commands", "without_commands"]

_LONGEST_TITLE = 250
_LONGEST_MESSAGE = 8000


def commands(outcome: Outcome, variables: Mapping[str, str]) -> list[str]:
    """Return the commands, one a line; none where HTTPS is concurrent without a limit.

    A file is named relative to the checkout: ``GITHUB_WORKSPACE`` of ``variables``, else the current
    directory. One outside of it is left out, since GitHub has no lines of it to show.
    """
    found = outcome.found
    if found is None:
        return [_command("error", {"title": "HTTPS could not be checked"}, outcome.error)]
    level = "notice" if outcome.passed else "error"
    title = headline(found)
    told = []
    for cause in found.causes:
        place = _place(found, cause, variables.get("GITHUB_WORKSPACE") or here())
        told.append(_command(level, {**place, "title": title}, _message(found, cause)))
    if not told and not outcome.passed:
        told.append(_command(level, {"title": title}, f"expected: {outcome.expected}"))
    return told


def without_commands(text: str) -> str:
    """Return ``text`` so that GitHub's runner takes none of its lines for a command.

    A line of the examined program that is quoted in it may look like one.
    """
    if not any(line.lstrip().startswith("::") or "##[" in line for line in text.splitlines()):
        return text
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{text.rstrip()}\n::{token}::\n"


def _place(found: Diagnosis, cause: Cause, root: str) -> dict[str, str]:
    excerpt = found.excerpt(cause.where)
    if excerpt is None or not excerpt.own or excerpt.file.startswith("<"):
        return {}
    root, file = os.path.realpath(root), os.path.realpath(excerpt.file)
    if not file.startswith(root.rstrip(os.sep) + os.sep):
        return {}
    return {"file": os.path.relpath(file, root), "line": str(excerpt.line)}


def _message(found: Diagnosis, cause: Cause) -> str:
    at = f" at {cause.where}" if cause.where else ""
    lines = [f"{cause.code}{at}: {cause.summary}", *cause.evidence, *cause.explanation.strip().splitlines()]
    for remedy in found.remedies:
        again = f" ({remedy.again})" if remedy.again else ""
        lines.append(f"fix: {remedy.line}   {remedy.where}{again}")
    return "\n".join(lines)


def _command(name: str, properties: Mapping[str, str], message: str) -> str:
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {given}::{_data(shown(message)[:_LONGEST_MESSAGE])}"


def _data(text: str) -> str:
    """Return ``text`` escaped as the message of a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return ``text`` escaped as the value of a property."""
    return _data(shown(text)[:_LONGEST_TITLE]).replace(":", "%3A").replace(",", "%2C")
