"""Read the lines of code around the places of a diagnosis, for a report that a person reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from diagnostics.model import Excerpt
from diagnostics.redaction import redact
from diagnostics.source_places import absolute, here, is_own, short, text_of, where

__all__ = ["excerpts_of"]

_AROUND = 3  # lines before and after
_LONGEST_LINE = 200
_PLACE = re.compile(r"(.+):(\d{1,9})", re.S)
_LINE = re.compile(r"(.+), line (\d{1,9})(?:[: (].*)?", re.S)  # in no file, or in a compiled one


def excerpts_of(
    places: Iterable[str], held: Iterable[dict[str, Any]], facts: dict[str, Any]
) -> list[Excerpt]:
    """Return the lines at ``places``, as they are printed, and where each of ``held`` held the hub.

    Places that are in no file, or in one that cannot be read, are left out. Secrets are cut.
    """
    wanted = {place: _located(place, facts) for place in places}
    for each in held:
        spot = each["stack"][0] if each["stack"] else ("", None)
        if spot[1]:  # a frame may be at no line
            wanted.setdefault(where(spot, facts), (absolute(str(spot[0]), facts), spot[1]))
    found = []
    for place, at in wanted.items():
        first, lines = _around(*at, facts) if at else (0, [])
        if at and lines:
            own = is_own((*at, ""), facts)
            found.append(Excerpt(place, at[0], at[1], first, lines, own))
    return found


def _located(place: str, facts: dict[str, Any]) -> tuple[str, int] | None:
    """Return the file and the line of a place as it is printed, relative to one of several folders."""
    for name in facts.get("sources", {}):
        found = _LINE.fullmatch(place)
        if found and short(name, facts) == found[1]:
            return name, int(found[2])
    match = _PLACE.fullmatch(place)
    if match is None:
        return None
    roots = [facts.get("started"), facts.get("cwd"), here(), *facts.get("path", [])]
    for root in filter(None, roots):
        file = os.path.normpath(os.path.join(root, match[1]))
        if text_of(file, facts) is not None and short(file, facts) == match[1]:
            return file, int(match[2])
    return None


def _around(file: str, number: int, facts: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the number of the first line, and the lines; (0, []) where it has no such line."""
    lines = (text_of(file, facts) or "").split("\n")
    if not 0 < number <= len(lines) or lines == [""]:
        return 0, []
    first = max(1, number - _AROUND)
    around = lines[first - 1 : number + _AROUND]
    while len(around) > 1 and first + len(around) - 1 > number and not around[-1].strip():
        around.pop()
    return first, [redact(line.expandtabs(4).rstrip())[:_LONGEST_LINE] for line in around]
